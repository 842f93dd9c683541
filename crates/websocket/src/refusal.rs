//! Refusal of an upgrade, as an HTTP answer.

use hyper::StatusCode;
use pharos_client::ClientError;
use pharos_wire::proto::ServerError;

/// The answer to an upgrade that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeRefusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// Reason, without secrets.
    pub reason: String,
}

impl UpgradeRefusal {
    pub(crate) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { status, reason }
    }

    pub(crate) fn bad_request(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }
}

/// Converts the broker's answer to the session.
impl From<ClientError> for UpgradeRefusal {
    fn from(error: ClientError) -> Self {
        let status = match &error {
            ClientError::Refused { code, .. } => status_of(*code),
            ClientError::Connect { .. }
            | ClientError::Disconnected { .. }
            | ClientError::ClosedByBroker
            | ClientError::TimedOut { .. }
            | ClientError::Redirected { .. }
            | ClientError::Address(_)
            | ClientError::Tls(_) => StatusCode::SERVICE_UNAVAILABLE,
            ClientError::EndOfTopic => StatusCode::PRECONDITION_FAILED,
            ClientError::Credentials(_)
            | ClientError::Unexpected { .. }
            | ClientError::TooLarge { .. }
            | ClientError::Malformed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, said(&error))
    }
}

/// Text for people about an error of the broker: the broker's own words.
pub(crate) fn said(error: &ClientError) -> String {
    match error {
        ClientError::Refused { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

fn status_of(code: ServerError) -> StatusCode {
    match code {
        ServerError::AuthenticationError => StatusCode::UNAUTHORIZED,
        ServerError::AuthorizationError => StatusCode::FORBIDDEN,
        ServerError::TopicNotFound | ServerError::SubscriptionNotFound | ServerError::ConsumerNotFound => {
            StatusCode::NOT_FOUND
        }
        ServerError::ProducerBusy
        | ServerError::ConsumerBusy
        | ServerError::ProducerFenced
        | ServerError::IncompatibleSchema => StatusCode::CONFLICT,
        ServerError::NotAllowedError
        | ServerError::TopicTerminatedError
        | ServerError::InvalidTopicName
        | ServerError::UnsupportedVersionError => StatusCode::PRECONDITION_FAILED,
        ServerError::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        ServerError::ServiceNotReady
        | ServerError::MetadataError
        | ServerError::PersistenceError
        | ServerError::ProducerBlockedQuotaExceededError
        | ServerError::ProducerBlockedQuotaExceededException => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_broker_says_becomes_a_status_and_its_words() {
        let refused = |code, message: &str| {
            let message = message.to_owned();
            UpgradeRefusal::from(ClientError::Refused { code, message })
        };
        let busy = refused(
            ServerError::ConsumerBusy,
            "Exclusive consumer is already connected",
        );
        assert_eq!(busy.status, StatusCode::CONFLICT);
        assert_eq!(busy.reason, "Exclusive consumer is already connected");
        let stranger = refused(ServerError::AuthenticationError, "Failed to authenticate");
        assert_eq!(stranger.status, StatusCode::UNAUTHORIZED);
        assert_eq!(
            refused(ServerError::AuthorizationError, "").status,
            StatusCode::FORBIDDEN
        );
    }
}
