//! What is asked about each command before it does anything. A command without a decision does not compile.

use pharos_auth::Action;
use pharos_wire::CommandType;

/// What is asked about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It says who the client is. Nothing else is taken before it.
    Proves,
    /// One of these actions, on what the command names; which one follows from what is in it.
    Asks(&'static [Action]),
    /// One of these actions, on the subscription of a consumer that was let in earlier. It is asked again.
    AsksOfConsumer(&'static [Action]),
    /// It belongs to a producer, consumer or watch of this connection, which was let in. Nothing is asked again.
    Attached,
    /// It concerns the connection alone.
    Connection,
    /// It is about a transaction of the client's own: only the role that made one may. What it adds to that is asked about as a producer
    /// there would be ([`Action::Produce`]), or a consumer ([`Action::Consume`]).
    OwnTransaction,
    /// Answered with an error: no client has reason to send it.
    NotServed,
    /// Only a broker may send it: the connection is closed.
    OfBrokers,
}

/// What is asked about a command.
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
