package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// What a message carries, and that it arrives whole and in order.
func registerMessages(s *suite) {
	compressions := map[string]pulsar.CompressionType{
		"none": pulsar.NoCompression, "lz4": pulsar.LZ4, "zlib": pulsar.ZLib, "zstd": pulsar.ZSTD, "snappy": pulsar.SNAPPY,
	}
	for name, compression := range compressions {
		s.add("produce-single-"+name, func(e *env) {
			produceConsume(e, pulsar.ProducerOptions{Topic: e.topic("produce"), DisableBatching: true, CompressionType: compression})
		})
		s.add("produce-batched-"+name, func(e *env) {
			options := batchingOptions(e.topic("produce"))
			options.BatchingMaxMessages, options.CompressionType = 30, compression
			produceConsume(e, options)
		})
	}
	s.add("chunked-20mb", chunked)
	s.add("non-persistent", nonPersistent)
	s.add("delayed", delayed)
	s.add("table-view", tableView)
	s.add("compaction", compaction)
}

func produceConsume(e *env, options pulsar.ProducerOptions) {
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: options.Topic})
	producer := e.produce(options)
	base := time.UnixMilli(1_700_000_000_000)
	var messages []*pulsar.ProducerMessage
	for index := range 200 {
		messages = append(messages, &pulsar.ProducerMessage{
			Payload:     []byte(fmt.Sprint(index, strings.Repeat("abcdefgh", index%50))),
			Key:         fmt.Sprintf("key-%d", index%7),
			OrderingKey: fmt.Sprintf("order-%d", index%3),
			Properties:  map[string]string{"index": fmt.Sprint(index), "empty": ""},
			EventTime:   base.Add(time.Duration(index) * time.Millisecond),
		})
	}
	ids := sendMessages(producer, messages)
	for index, message := range receive(consumer, 200) {
		sent := messages[index]
		expectEqual(string(message.Payload()), string(sent.Payload), "content")
		expectEqual(message.Key(), sent.Key, "key")
		expectEqual(message.OrderingKey(), sent.OrderingKey, "ordering key")
		expectEqual(message.Properties(), sent.Properties, "properties")
		expectEqual(message.EventTime().UnixMilli(), sent.EventTime.UnixMilli(), "event time")
		expectEqual(message.Topic(), options.Topic, "topic")
		expectEqual(message.ProducerName(), producer.Name(), "producer name")
		expectEqual(message.RedeliveryCount(), uint32(0), "redelivery count")
		expectEqual(place(message.ID()), place(ids[index]), "message id")
		expect(time.Since(message.PublishTime()).Abs() < time.Minute, "publish time is far from now")
		must(consumer.Ack(message), "ack")
	}
}

func chunked(e *env) {
	topic := e.topic("chunked")
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic})
	producer := e.produce(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true})
	content := make([]byte, 20<<20)
	rand.New(rand.NewSource(7)).Read(content)
	sendAll(producer, []string{"before", string(content), "after"})
	messages := receive(consumer, 3)
	expectEqual(string(messages[0].Payload()), "before", "message before")
	expectEqual(sha256.Sum256(messages[1].Payload()), sha256.Sum256(content), "hash of the chunked message")
	expectEqual(string(messages[2].Payload()), "after", "message after")
	must(consumer.Ack(messages[1]), "ack of a chunked message")
}

func nonPersistent(e *env) {
	topic := strings.Replace(e.topic("np"), "persistent://", "non-persistent://", 1)
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic})
	producer := e.single(topic)
	for _, content := range numbered(20) {
		send(producer, &pulsar.ProducerMessage{Payload: []byte(content)})
	}
	expectEqual(receiveAck(consumer, 20), numbered(20), "contents")
}

func delayed(e *env) {
	topic := e.topic("delayed")
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
	producer := e.single(topic)
	sent := time.Now()
	send(producer, &pulsar.ProducerMessage{Payload: []byte("later"), DeliverAfter: 3 * time.Second})
	send(producer, &pulsar.ProducerMessage{Payload: []byte("now")})
	expectEqual(receiveAck(consumer, 2), []string{"now", "later"}, "order")
	// A broker may be early by one tick of its delay tracker, which is one second unless configured.
	waited := time.Since(sent)
	expect(waited >= 1900*time.Millisecond && waited < 10*time.Second, "delivered after %v, asked for 3 s", waited)
}

func tableView(e *env) {
	topic := e.topic("table")
	schema := pulsar.NewJSONSchema(record(readingFields), nil)
	options := batchingOptions(topic)
	options.Schema = schema
	producer := e.produce(options)
	var messages []*pulsar.ProducerMessage
	for index := range 30 {
		messages = append(messages, &pulsar.ProducerMessage{Key: fmt.Sprintf("k-%d", index%10), Value: &reading{"s", index}})
	}
	sendMessages(producer, messages)
	view, err := e.client.CreateTableView(pulsar.TableViewOptions{
		Topic: topic, Schema: schema, SchemaValueType: reflect.TypeFor[reading]()})
	must(err, "create a table view")
	expectEqual(view.Size(), 10, "keys at first")
	expectEqual(view.Get("k-3"), reading{"s", 23}, "last value of a key")
	sendMessages(producer, []*pulsar.ProducerMessage{{Key: "k-3", Value: &reading{"s", 99}}})
	waitUntil("the view sees an update", func() bool { return view.Get("k-3") == reading{"s", 99} })
	view.Close()
}

func compaction(e *env) {
	topic := e.topic("compacted")
	// Not in batches: the client hands on what is marked as compacted out of one, as an empty message without a key.
	producer := e.produce(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, CompressionType: pulsar.ZSTD})
	var messages []*pulsar.ProducerMessage
	for index := range 30 {
		messages = append(messages, &pulsar.ProducerMessage{Key: fmt.Sprintf("k-%d", index%10), Payload: fmt.Appendf(nil, "v-%d", index)})
	}
	sendMessages(producer, messages)
	sendMessages(producer, []*pulsar.ProducerMessage{{Key: "k-9", Payload: []byte{}}})
	e.compact(topic)
	reader, err := e.client.CreateReader(pulsar.ReaderOptions{
		Topic: topic, StartMessageID: pulsar.EarliestMessageID(), ReadCompacted: true})
	must(err, "create a reader")
	var seen, last []string
	for key := range 9 {
		last = append(last, fmt.Sprintf("v-%d", 20+key))
	}
	ctx, cancel := context.WithTimeout(context.Background(), receiveTime)
	defer cancel()
	for reader.HasNext() {
		message, err := reader.Next(ctx)
		must(err, "read")
		seen = append(seen, string(message.Payload()))
	}
	expectEqual(seen, last, "last values")
	sendMessages(producer, []*pulsar.ProducerMessage{{Key: "k-0", Payload: []byte("later")}})
	message, err := reader.Next(ctx)
	must(err, "read on")
	expectEqual(string(message.Payload()), "later", "what comes after the compaction")
	reader.Close()
	consumer, err := e.client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", Type: pulsar.Exclusive, ReadCompacted: true,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	must(err, "subscribe")
	expectEqual(receiveAck(consumer, 10), append(last, "later"), "a subscription")
}
