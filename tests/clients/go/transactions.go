package main

import (
	"context"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Transactions: what is produced and acknowledged in one counts when it is committed, and not at all when it is aborted.
func registerTransactions(s *suite) {
	s.add("transaction-commit", func(e *env) { transaction(e, true, false) })
	s.add("transaction-abort", func(e *env) { transaction(e, false, false) })
	s.add("transaction-commit-batched", func(e *env) { transaction(e, true, true) })
}

func transaction(e *env, commit, batched bool) {
	e = newTransactionalEnv()
	defer e.client.Close()
	in, out := e.topic("txn-in"), e.topic("txn-out")
	inOptions := pulsar.ConsumerOptions{Topic: in, Type: pulsar.Shared}
	source, sink := e.subscribe(inOptions), e.subscribe(pulsar.ConsumerOptions{Topic: out})
	sendAll(e.single(in), numbered(5))
	producer := e.single(out)
	if batched {
		producer = e.batching(out)
	}
	txn, err := e.client.NewTransaction(time.Minute)
	must(err, "new transaction")
	sent := make(chan error, 5)
	for _, message := range receive(source, 5) {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: message.Payload(), Transaction: txn},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { sent <- err })
		must(source.AckWithTxn(message, txn), "ack in the transaction")
	}
	must(producer.Flush(), "flush")
	for range 5 {
		must(<-sent, "send in the transaction")
	}
	// It follows them, so it waits for the end of the transaction too.
	sendAll(e.single(out), []string{"plain"})
	if commit {
		must(txn.Commit(context.Background()), "commit")
		expectEqual(receiveAck(sink, 6), append(numbered(5), "plain"), "after the commit")
	} else {
		must(txn.Abort(context.Background()), "abort")
		expectEqual(receiveAck(sink, 1), []string{"plain"}, "after the abort")
	}
	source.Close()
	source = e.subscribe(inOptions)
	sendAll(e.single(in), []string{"sentinel"})
	if commit {
		expectEqual(receiveAck(source, 1), []string{"sentinel"}, "what was acknowledged does not come again")
	} else {
		expectEqual(receiveAck(source, 6), append(numbered(5), "sentinel"), "what was not acknowledged comes again")
	}
}
