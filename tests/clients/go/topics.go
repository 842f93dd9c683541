package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Partitioned topics and subscriptions by pattern.
func registerTopics(s *suite) {
	s.add("partitioned", partitioned)
	s.add("partitioned-by-key", partitionedByKey)
	s.add("pattern", pattern)
	s.add("multi-topics", multiTopics)
}

func partitioned(e *env) {
	topic := e.topic("partitioned")
	e.createPartitioned(topic, 4)
	var names []string
	for index := range 4 {
		names = append(names, fmt.Sprintf("%s-partition-%d", topic, index))
	}
	found, err := e.client.TopicPartitions(topic)
	must(err, "partitions")
	expectEqual(found, names, "partitions")
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic})
	producer := e.produce(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	sendAll(producer, numbered(80))
	messages := receive(consumer, 80)
	expectEqual(sorted(texts(messages)), sorted(numbered(80)), "all messages, each once")
	used := map[string]bool{}
	for _, message := range messages {
		used[message.Topic()] = true
		expect(strings.HasSuffix(message.Topic(), fmt.Sprintf("-partition-%d", message.ID().PartitionIdx())), "partition in the message id")
	}
	expectEqual(len(used), 4, "partitions used")
}

func partitionedByKey(e *env) {
	topic := e.topic("partitioned-key")
	e.createPartitioned(topic, 3)
	consumers := e.consumers(2, pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Failover})
	var messages []*pulsar.ProducerMessage
	expected := map[string][]string{}
	for index := range 10 {
		for key := range 20 {
			name, content := fmt.Sprintf("key-%d", key), fmt.Sprintf("%d %d", key, index)
			messages = append(messages, &pulsar.ProducerMessage{Key: name, Payload: []byte(content)})
			expected[name] = append(expected[name], content)
		}
	}
	sendMessages(e.batching(topic), messages)
	seen, places := map[string][]string{}, map[string]bool{}
	for _, g := range collect(consumers, 200, true) {
		seen[g.message.Key()] = append(seen[g.message.Key()], string(g.message.Payload()))
		places[g.message.Key()+"@"+g.message.Topic()] = true
	}
	expectEqual(seen, expected, "messages of each key")
	expectEqual(len(places), 20, "keys, each in one partition")
}

func pattern(e *env) {
	base := e.topic("pattern")
	early := e.single(base + "-early")
	consumer := e.subscribe(pulsar.ConsumerOptions{TopicsPattern: base + "-.*", AutoDiscoveryPeriod: time.Second,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	sendAll(early, []string{"early"})
	expectEqual(receiveAck(consumer, 1), []string{"early"}, "from the topic that was there")
	sendAll(e.single(base+"-late"), []string{"late"})
	message := receive(consumer, 1)[0]
	expectEqual(string(message.Payload()), "late", "from the topic that came later")
	expectEqual(message.Topic(), base+"-late", "its topic")
}

func multiTopics(e *env) {
	topics := []string{e.topic("multi-0"), e.topic("multi-1"), e.topic("multi-2")}
	consumer := e.subscribe(pulsar.ConsumerOptions{Topics: topics})
	for _, topic := range topics {
		sendAll(e.single(topic), named(topic, 10))
	}
	seen := map[string][]string{}
	for _, message := range receive(consumer, 30) {
		seen[message.Topic()] = append(seen[message.Topic()], string(message.Payload()))
	}
	for _, topic := range topics {
		expectEqual(seen[topic], named(topic, 10), "contents of one topic")
	}
}
