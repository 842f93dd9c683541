package main

import (
	"slices"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Cumulative, batch-index and confirmed acknowledgement, and what is remembered of them.
func registerAcknowledge(s *suite) {
	s.add("cumulative-ack", func(e *env) { cumulativeAck(e, false) })
	s.add("cumulative-ack-with-response", func(e *env) { cumulativeAck(e, true) })
	s.add("individual-ack-with-holes", func(e *env) { ackHoles(e, false) })
	s.add("individual-ack-with-response", func(e *env) { ackHoles(e, true) })
	s.add("batch-index-ack", batchIndexAck)
	s.add("batch-index-ack-cumulative", batchIndexCumulative)
	s.add("ack-many", ackMany)
}

func cumulativeAck(e *env, response bool) {
	topic := e.topic("cumulative")
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic, AckWithResponse: response})
	sendAll(e.single(topic), numbered(20))
	must(consumer.AckCumulative(receive(consumer, 20)[11]), "cumulative ack")
	consumer.Close()
	consumer = e.subscribe(pulsar.ConsumerOptions{Topic: topic})
	expectEqual(receiveAck(consumer, 8), numbered(20)[12:], "after joining again")
}

func ackHoles(e *env, response bool) {
	topic := e.topic("holes")
	options := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, AckWithResponse: response}
	consumer := e.subscribe(options)
	producer := e.single(topic)
	sendAll(producer, numbered(20))
	for index, message := range receive(consumer, 20) {
		if index%3 != 0 {
			must(consumer.Ack(message), "ack")
		}
	}
	consumer.Close()
	consumer = e.subscribe(options)
	expectEqual(slices.Sorted(slices.Values(receiveAck(consumer, 7))), slices.Sorted(slices.Values(every(numbered(20), 3, 0))),
		"after joining again")
	sendAll(producer, []string{"sentinel"})
	expectEqual(receiveAck(consumer, 1), []string{"sentinel"}, "nothing else comes again")
}

func oneBatch(e *env, topic string) pulsar.Producer {
	producer := e.batching(topic)
	ids := sendAll(producer, numbered(20))
	for index, id := range ids {
		expectEqual([]int64{id.LedgerID(), id.EntryID()}, []int64{ids[0].LedgerID(), ids[0].EntryID()}, "one batch")
		expectEqual(id.BatchIdx(), int32(index), "batch index")
	}
	return producer
}

func batchIndexAck(e *env) {
	topic := e.topic("batch-index")
	options := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, EnableBatchIndexAcknowledgment: true}
	consumer := e.subscribe(options)
	producer := oneBatch(e, topic)
	for _, message := range every(receive(consumer, 20), 2, 1) {
		must(consumer.Ack(message), "ack")
	}
	consumer.Close()
	consumer = e.subscribe(options)
	expectEqual(receiveAck(consumer, 10), every(numbered(20), 2, 0), "the unacknowledged half of the batch")
	sendAll(producer, []string{"sentinel"})
	expectEqual(receiveAck(consumer, 1), []string{"sentinel"}, "nothing else comes again")
}

func batchIndexCumulative(e *env) {
	topic := e.topic("batch-index-cumulative")
	options := pulsar.ConsumerOptions{Topic: topic, EnableBatchIndexAcknowledgment: true}
	consumer := e.subscribe(options)
	oneBatch(e, topic)
	must(consumer.AckCumulative(receive(consumer, 20)[11]), "cumulative ack")
	consumer.Close()
	consumer = e.subscribe(options)
	expectEqual(receiveAck(consumer, 8), numbered(20)[12:], "the rest of the batch")
}

func ackMany(e *env) {
	topic := e.topic("ack-many")
	options := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, AckWithResponse: true}
	consumer := e.subscribe(options)
	sendAll(e.single(topic), numbered(100))
	var ids []pulsar.MessageID
	for _, message := range receive(consumer, 95) {
		ids = append(ids, message.ID())
	}
	must(consumer.AckIDList(ids), "ack of many")
	consumer.Close()
	consumer = e.subscribe(options)
	expectEqual(receiveAck(consumer, 5), numbered(100)[95:], "after joining again")
}
