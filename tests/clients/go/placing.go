package main

import (
	"context"
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Readers, seeking and the last message id: where in the topic to begin.
func registerPlacing(s *suite) {
	s.add("reader", func(e *env) { reader(e, false) })
	s.add("reader-batched", func(e *env) { reader(e, true) })
	s.add("reader-latest-inclusive", readerLatestInclusive)
	s.add("reader-seek", readerSeek)
	s.add("seek-message-id", seekMessageID)
	s.add("seek-time", seekTime)
	s.add("last-message-id", lastMessageID)
}

// The client's own ids for the ends name no partition, which its `Seek` refuses.
var (
	earliestHere = pulsar.NewMessageID(-1, -1, -1, 0)
	latestHere   = pulsar.NewMessageID(math.MaxInt64, math.MaxInt64, -1, 0)
)

// place is a message id without what the receipt and the delivery tell differently.
func place(id pulsar.MessageID) [3]int64 {
	return [3]int64{id.LedgerID(), id.EntryID(), int64(max(id.BatchIdx(), 0))}
}

func (e *env) reader(options pulsar.ReaderOptions) pulsar.Reader {
	made, err := e.client.CreateReader(options)
	must(err, "create a reader")
	return made
}

func next(r pulsar.Reader) string {
	ctx, cancel := context.WithTimeout(context.Background(), receiveTime)
	defer cancel()
	message, err := r.Next(ctx)
	must(err, "next message of the reader")
	return string(message.Payload())
}

func readAll(r pulsar.Reader) []string {
	var contents []string
	for r.HasNext() {
		contents = append(contents, next(r))
	}
	return contents
}

func reader(e *env, batched bool) {
	topic := e.topic("reader")
	options := pulsar.ProducerOptions{Topic: topic, DisableBatching: true}
	if batched {
		options = batchingOptions(topic)
		options.BatchingMaxMessages = 10
	}
	producer := e.produce(options)
	ids := sendAll(producer, numbered(30))
	earliest := e.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
	expectEqual(readAll(earliest), numbered(30), "from earliest")
	latest := e.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.LatestMessageID()})
	expect(!latest.HasNext(), "something available at latest")
	exclusive := e.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: ids[13]})
	expectEqual(readAll(exclusive), numbered(30)[14:], "after a message id")
	inclusive := e.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: ids[13], StartMessageIDInclusive: true})
	expectEqual(readAll(inclusive), numbered(30)[13:], "from a message id on")
	copied, err := pulsar.DeserializeMessageID(ids[13].Serialize())
	must(err, "deserialize a message id")
	again := e.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: copied})
	expectEqual(readAll(again), numbered(30)[14:], "after a message id that was serialized")
	sendAll(producer, []string{"next"})
	for _, r := range []pulsar.Reader{earliest, latest, exclusive, inclusive} {
		expectEqual(next(r), "next", "a new message")
		expect(!r.HasNext(), "more available at the end")
	}
}

func readerLatestInclusive(e *env) {
	topic := e.topic("reader-latest")
	sendAll(e.single(topic), numbered(3))
	r := e.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.LatestMessageID(), StartMessageIDInclusive: true})
	expectEqual(readAll(r), []string{"m-2"}, "from the last message on")
}

func readerSeek(e *env) {
	topic := e.topic("reader-seek")
	ids := sendAll(e.single(topic), numbered(20))
	r := e.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
	expectEqual(readAll(r), numbered(20), "from earliest")
	must(r.Seek(ids[4]), "seek")
	expectEqual(readAll(r), numbered(20)[5:], "after seeking to a message id")
	must(r.Seek(earliestHere), "seek")
	expectEqual(readAll(r), numbered(20), "after seeking to earliest")
}

// Acks are confirmed before a seek: a stock Pulsar may apply one that is under way after the seek, and undo it.
func seekMessageID(e *env) {
	topic := e.topic("seek")
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic, AckWithResponse: true})
	inclusive := e.subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "t", StartMessageIDInclusive: true,
		AckWithResponse: true})
	producer := e.single(topic)
	ids := sendAll(producer, numbered(20))
	expectEqual(receiveAck(consumer, 20), numbered(20), "contents at first")
	expectEqual(receiveAck(inclusive, 20), numbered(20), "contents at first")
	must(consumer.Seek(ids[7]), "seek")
	expectEqual(receiveAck(consumer, 12), numbered(20)[8:], "after seeking back, exclusive")
	must(inclusive.Seek(ids[7]), "seek")
	expectEqual(receiveAck(inclusive, 13), numbered(20)[7:], "after seeking back, inclusive")
	must(consumer.Seek(earliestHere), "seek")
	expectEqual(receiveAck(consumer, 20), numbered(20), "after seeking to earliest")
	must(consumer.Seek(earliestHere), "seek")
	receive(consumer, 1)
	must(consumer.Seek(latestHere), "seek")
	sendAll(producer, []string{"next"})
	expectEqual(receiveAck(consumer, 1), []string{"next"}, "after seeking to latest")
}

func seekTime(e *env) {
	topic := e.topic("seek-time")
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic, AckWithResponse: true})
	producer := e.single(topic)
	sendAll(producer, named("old", 10))
	old := receive(consumer, 10)
	last := old[9].PublishTime()
	waitUntil("the clock moves on", func() bool { return time.Since(last) > 2*time.Millisecond })
	sendAll(producer, named("new", 10))
	fresh := receive(consumer, 10)
	expect(fresh[0].PublishTime().After(last), "publish times do not grow")
	must(consumer.SeekByTime(fresh[0].PublishTime()), "seek by time")
	expectEqual(receiveAck(consumer, 10), named("new", 10), "after seeking by time")
	must(consumer.SeekByTime(old[0].PublishTime().Add(-time.Minute)), "seek by time")
	expectEqual(receiveAck(consumer, 20), append(named("old", 10), named("new", 10)...), "after seeking to before it all")
}

func lastMessageID(e *env) {
	topic := e.topic("last-id")
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic})
	last := func() pulsar.MessageID {
		ids, err := consumer.GetLastMessageIDs()
		must(err, "last message id")
		expectEqual(len(ids), 1, "last message ids")
		return ids[0]
	}
	expectEqual(last().EntryID(), int64(-1), "entry id in an empty topic")
	ids := sendAll(e.single(topic), numbered(5))
	expectEqual(place(last()), place(ids[4]), "last message id")
	ids = sendAll(e.batching(topic), numbered(7))
	expectEqual(place(last()), place(ids[6]), "last message id of a batch")
	expectEqual(last().BatchIdx(), int32(6), "batch index of the last of seven")
}
