package main

import (
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar"
)

// The four ways of sharing a subscription.
func registerSubscriptions(s *suite) {
	s.add("exclusive", exclusive)
	s.add("shared", func(e *env) { shared(e, pulsar.ProducerOptions{Topic: e.topic("shared"), DisableBatching: true}) })
	s.add("shared-batched", func(e *env) {
		options := batchingOptions(e.topic("shared"))
		options.BatchingMaxMessages = 10
		shared(e, options)
	})
	s.add("shared-unacked-go-to-the-other", sharedLeave)
	s.add("failover", failover)
	s.add("key-shared", func(e *env) {
		keyShared(e, pulsar.ProducerOptions{Topic: e.topic("key-shared"), DisableBatching: true})
	})
	s.add("key-shared-batched", func(e *env) {
		options := batchingOptions(e.topic("key-shared"))
		options.BatcherBuilderType = pulsar.KeyBasedBatchBuilder
		keyShared(e, options)
	})
	s.add("initial-position", initialPosition)
	s.add("unsubscribe", unsubscribe)
}

func (e *env) consumers(count int, options pulsar.ConsumerOptions) []pulsar.Consumer {
	var all []pulsar.Consumer
	for index := range count {
		options.Name = fmt.Sprintf("c%d", index)
		all = append(all, e.subscribe(options))
	}
	return all
}

func contents(all []got) []string {
	var result []string
	for _, g := range all {
		result = append(result, string(g.message.Payload()))
	}
	return result
}

func exclusive(e *env) {
	topic := e.topic("exclusive")
	first := e.subscribe(pulsar.ConsumerOptions{Topic: topic})
	_, err := e.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
	expectError(err, "ConsumerBusy", "a second exclusive consumer")
	_, err = e.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s", Type: pulsar.Shared})
	expectError(err, "ConsumerBusy", "another type")
	other := e.subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "t"})
	producer := e.batching(topic)
	sendAll(producer, numbered(50))
	expectEqual(receiveAck(first, 50), numbered(50), "contents")
	expectEqual(receiveAck(other, 50), numbered(50), "contents on another subscription")
	first.Close()
	again := e.subscribe(pulsar.ConsumerOptions{Topic: topic})
	sendAll(producer, []string{"next"})
	expectEqual(receiveAck(again, 1), []string{"next"}, "after joining again")
}

func shared(e *env, options pulsar.ProducerOptions) {
	consumers := e.consumers(3, pulsar.ConsumerOptions{Topic: options.Topic, Type: pulsar.Shared, ReceiverQueueSize: 10})
	sendAll(e.produce(options), numbered(300))
	all := collect(consumers, 300, true)
	expectEqual(sorted(contents(all)), sorted(numbered(300)), "all messages, each once")
	counts := [3]int{}
	for _, g := range all {
		counts[g.consumer]++
	}
	expect(counts[0] > 0 && counts[1] > 0 && counts[2] > 0, "a consumer got nothing: %v", counts)
}

func sharedLeave(e *env) {
	topic := e.topic("shared-leave")
	options := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared}
	first := e.subscribe(options)
	sendAll(e.single(topic), numbered(20))
	receive(first, 10)
	second := e.subscribe(options)
	first.Close()
	expectEqual(sorted(receiveAck(second, 20)), sorted(numbered(20)), "unacknowledged messages")
}

func failover(e *env) {
	topic := e.topic("failover")
	consumers := e.consumers(2, pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Failover})
	producer := e.single(topic)
	sendAll(producer, numbered(30))
	all := collect(consumers, 30, false)
	active := all[29].consumer
	for _, g := range all {
		expectEqual(g.consumer, active, "the active consumer")
	}
	expectEqual(contents(all), numbered(30), "contents at the active consumer")
	for _, g := range all[:10] {
		must(consumers[active].Ack(g.message), "ack")
	}
	consumers[active].Close()
	standby := consumers[1-active]
	expectEqual(receiveAck(standby, 20), numbered(30)[10:], "after the takeover")
	sendAll(producer, []string{"next"})
	expectEqual(receiveAck(standby, 1), []string{"next"}, "new messages after the takeover")
}

func keyShared(e *env, options pulsar.ProducerOptions) {
	consumers := e.consumers(3, pulsar.ConsumerOptions{Topic: options.Topic, Type: pulsar.KeyShared, ReceiverQueueSize: 50})
	var messages []*pulsar.ProducerMessage
	expected := map[string][]string{}
	for index := range 10 {
		for key := range 40 {
			name := fmt.Sprintf("key-%d", key)
			content := fmt.Sprintf("%s %d", name, index)
			messages = append(messages, &pulsar.ProducerMessage{Key: name, Payload: []byte(content)})
			expected[name] = append(expected[name], content)
		}
	}
	sendMessages(e.produce(options), messages)
	owners, used, seen := map[string]int{}, map[int]bool{}, map[string][]string{}
	for _, g := range collect(consumers, 400, true) {
		key := g.message.Key()
		if owner, known := owners[key]; known {
			expectEqual(g.consumer, owner, "consumer of %s", key)
		}
		owners[key], used[g.consumer] = g.consumer, true
		seen[key] = append(seen[key], string(g.message.Payload()))
	}
	expectEqual(seen, expected, "messages of each key")
	expectEqual(len(used), 3, "consumers with at least one key")
}

func initialPosition(e *env) {
	topic := e.topic("initial")
	producer := e.single(topic)
	sendAll(producer, numbered(5))
	early := e.subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "early",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	late := e.subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "late"})
	sendAll(producer, []string{"last"})
	expectEqual(receiveAck(early, 6), append(numbered(5), "last"), "from earliest")
	expectEqual(receiveAck(late, 1), []string{"last"}, "from latest")
}

func unsubscribe(e *env) {
	topic := e.topic("unsubscribe")
	producer := e.single(topic)
	options := pulsar.ConsumerOptions{Topic: topic, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest}
	consumer := e.subscribe(options)
	options.SubscriptionName = "keeper"
	keeper := e.subscribe(options)
	sendAll(producer, numbered(5))
	expectEqual(receiveAck(consumer, 5), numbered(5), "contents")
	must(consumer.Unsubscribe(), "unsubscribe")
	// The place is forgotten: the same name starts anew, and what "keeper" holds is there again.
	options.SubscriptionName = "s"
	expectEqual(receiveAck(e.subscribe(options), 5), numbered(5), "contents after unsubscribe")
	expectEqual(receiveAck(keeper, 5), numbered(5), "contents of the other subscription")
}
