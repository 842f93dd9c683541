package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Negative acknowledgement, the dead letter topic and the retry letter topic. This client has no ack timeout.
func registerRedelivery(s *suite) {
	s.add("negative-ack", negativeAck)
	s.add("negative-ack-batched", negativeAckBatched)
	s.add("dead-letter", deadLetter)
	s.add("retry-letter", retryLetter)
}

func quick(topic string) pulsar.ConsumerOptions {
	return pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, NackRedeliveryDelay: 200 * time.Millisecond}
}

func sorted(all []string) []string { return slices.Sorted(slices.Values(all)) }

func negativeAck(e *env) {
	topic := e.topic("negative-ack")
	consumer := e.subscribe(quick(topic))
	producer := e.single(topic)
	sendAll(producer, numbered(20))
	for index, message := range receive(consumer, 20) {
		expectEqual(message.RedeliveryCount(), uint32(0), "redelivery count at first")
		if index%2 == 1 {
			consumer.Nack(message)
		} else {
			must(consumer.Ack(message), "ack")
		}
	}
	for round := uint32(1); round <= 2; round++ {
		again := receive(consumer, 10)
		expectEqual(sorted(texts(again)), sorted(every(numbered(20), 2, 1)), "redelivered in round %d", round)
		for _, message := range again {
			expectEqual(message.RedeliveryCount(), round, "redelivery count")
			if round == 1 {
				consumer.Nack(message)
			} else {
				must(consumer.Ack(message), "ack")
			}
		}
	}
	sendAll(producer, []string{"sentinel"})
	expectEqual(receiveAck(consumer, 1), []string{"sentinel"}, "after all are acknowledged")
}

func negativeAckBatched(e *env) {
	topic := e.topic("negative-ack-batched")
	options := quick(topic)
	options.EnableBatchIndexAcknowledgment = true
	consumer := e.subscribe(options)
	sendAll(e.batching(topic), numbered(20))
	for index, message := range receive(consumer, 20) {
		if index%2 == 1 {
			consumer.Nack(message)
		} else {
			must(consumer.Ack(message), "ack")
		}
	}
	expectEqual(sorted(receiveAck(consumer, 10)), sorted(every(numbered(20), 2, 1)), "redelivered")
}

func deadLetter(e *env) {
	topic := e.topic("dead-letter")
	deadTopic := topic + "-s-DLQ"
	options := quick(topic)
	options.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: deadTopic, InitialSubscriptionName: "kept"}
	consumer := e.subscribe(options)
	dead := e.subscribe(pulsar.ConsumerOptions{Topic: deadTopic, SubscriptionName: "sink"})
	producer := e.single(topic)
	send(producer, &pulsar.ProducerMessage{Payload: []byte("poison"), Key: "k", Properties: map[string]string{"who": "me"}})
	send(producer, &pulsar.ProducerMessage{Payload: []byte("fine")})
	var deliveries []string
	for range 3 {
		message := receive(consumer, 1)[0]
		deliveries = append(deliveries, fmt.Sprintf("%s%d", message.Payload(), message.RedeliveryCount()))
		if string(message.Payload()) == "fine" {
			must(consumer.Ack(message), "ack")
		} else {
			consumer.Nack(message)
		}
	}
	expectEqual(sorted(deliveries), []string{"fine0", "poison0", "poison1"}, "deliveries and their counts")
	message := receive(dead, 1)[0]
	expectEqual(string(message.Payload()), "poison", "content in the dead letter topic")
	expectEqual(message.Properties()["who"], "me", "its property")
	expectEqual(message.Key(), "k", "its key")
	sendAll(producer, []string{"sentinel"})
	expectEqual(receiveAck(consumer, 1), []string{"sentinel"}, "the subscription goes on")
}

func retryLetter(e *env) {
	topic := e.topic("retry-letter")
	deadTopic, retryTopic := topic+"-s-DLQ", topic+"-s-RETRY"
	dead := e.subscribe(pulsar.ConsumerOptions{Topic: deadTopic, SubscriptionName: "sink"})
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, RetryEnable: true,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: deadTopic, RetryLetterTopic: retryTopic}})
	send(e.single(topic), &pulsar.ProducerMessage{Payload: []byte("again"), Properties: map[string]string{"who": "me"}})
	for try := range 3 {
		message := receive(consumer, 1)[0]
		expectEqual(string(message.Payload()), "again", "content in try %d", try)
		expectEqual(message.Properties()["who"], "me", "property in try %d", try)
		from := retryTopic
		if try == 0 {
			from = topic
		}
		expectEqual(message.Topic(), from, "topic in try %d", try)
		consumer.ReconsumeLater(message, 200*time.Millisecond)
	}
	expectEqual(receiveAck(dead, 1), []string{"again"}, "the dead letter topic")
}
