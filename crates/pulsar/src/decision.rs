//! Authorization decision for each command, made before the command does anything. A command without a decision does
//! not compile.

use pharos_auth::Action;
use pharos_wire::CommandType;

/// Authorization that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Authenticates the client. No other command is accepted before it.
    Proves,
    /// Needs one of these actions on the resource that the command names; its content decides which one.
    Asks(&'static [Action]),
    /// Needs one of these actions on the subscription of a consumer that was admitted earlier. It is checked again.
    AsksOfConsumer(&'static [Action]),
    /// Belongs to a producer, consumer or watch of this connection that was admitted. Nothing is checked again.
    Attached,
    /// Concerns the connection alone.
    Connection,
    /// Concerns a transaction of the client's own: only the role that created it may use it. Partitions added to it
    /// are checked as for a producer ([`Action::Produce`]), subscriptions as for a consumer ([`Action::Consume`]).
    OwnTransaction,
    /// Answered with an error: no client has reason to send it.
    NotServed,
    /// Only a broker may send it: the connection is closed.
    OfBrokers,
}

/// Returns the authorization that a command needs.
#[must_use]
pub fn decision(command: CommandType) -> Decision {
    use CommandType as C;
    match command {
        C::Connect | C::AuthResponse => Decision::Proves,
        C::PartitionedMetadata | C::Lookup => Decision::Asks(&[Action::Lookup]),
        C::Producer => Decision::Asks(&[Action::Produce, Action::ProduceWithSubscription]),
        C::Subscribe => Decision::Asks(&[Action::Consume]),
        C::GetTopicsOfNamespace | C::WatchTopicList => Decision::Asks(&[Action::ListTopics]),
        C::GetSchema => Decision::Asks(&[Action::ReadSchema]),
        C::GetOrCreateSchema => Decision::Asks(&[Action::UpdateSchema]),
        C::Unsubscribe => Decision::AsksOfConsumer(&[Action::DeleteSubscription]),
        C::Seek => Decision::AsksOfConsumer(&[Action::Seek]),
        C::GetLastMessageId | C::ConsumerStats => Decision::AsksOfConsumer(&[Action::ReadSubscription]),
        C::Send
        | C::CloseProducer
        | C::Ack
        | C::Flow
        | C::RedeliverUnacknowledgedMessages
        | C::CloseConsumer
        | C::WatchTopicListClose => Decision::Attached,
        C::Ping | C::Pong => Decision::Connection,
        C::NewTxn
        | C::AddPartitionToTxn
        | C::AddSubscriptionToTxn
        | C::EndTxn
        | C::TcClientConnectRequest => Decision::OwnTransaction,
        C::EndTxnOnPartition | C::EndTxnOnSubscription => Decision::NotServed,
        C::Connected
        | C::SendReceipt
        | C::SendError
        | C::Message
        | C::Success
        | C::Error
        | C::ProducerSuccess
        | C::PartitionedMetadataResponse
        | C::LookupResponse
        | C::ConsumerStatsResponse
        | C::ReachedEndOfTopic
        | C::GetLastMessageIdResponse
        | C::ActiveConsumerChange
        | C::GetTopicsOfNamespaceResponse
        | C::GetSchemaResponse
        | C::AuthChallenge
        | C::AckResponse
        | C::GetOrCreateSchemaResponse
        | C::NewTxnResponse
        | C::AddPartitionToTxnResponse
        | C::AddSubscriptionToTxnResponse
        | C::EndTxnResponse
        | C::EndTxnOnPartitionResponse
        | C::EndTxnOnSubscriptionResponse
        | C::TcClientConnectResponse
        | C::WatchTopicListSuccess
        | C::WatchTopicUpdate
        | C::TopicMigrated => Decision::OfBrokers,
    }
}
