package main

import "github.com/apache/pulsar-client-go/pulsar"

// Broadcast subscriptions: one name, every consumer gets everything. An extension of Pharos.
func registerBroadcast(s *suite) {
	ask := map[string]string{"pharos.subscription": "broadcast"}
	s.addExtension("broadcast-subscription-property", func(e *env) {
		broadcast(e, pulsar.ConsumerOptions{Type: pulsar.Exclusive, SubscriptionProperties: ask}, false)
	})
	s.addExtension("broadcast-consumer-property", func(e *env) {
		broadcast(e, pulsar.ConsumerOptions{Type: pulsar.Shared, Properties: ask}, false)
	})
	s.addExtension("broadcast-batched", func(e *env) {
		broadcast(e, pulsar.ConsumerOptions{Type: pulsar.Failover, SubscriptionProperties: ask}, true)
	})
}

func broadcast(e *env, options pulsar.ConsumerOptions, batched bool) {
	options.Topic, options.SubscriptionName = e.topic("broadcast"), "everyone"
	join := func(who string) pulsar.Consumer {
		options.Name = who
		return e.subscribe(options)
	}
	a, b, c := join("a"), join("b"), join("c")
	producer := e.single(options.Topic)
	if batched {
		producer = e.batching(options.Topic)
	}
	sendAll(producer, numbered(100))
	for _, consumer := range []pulsar.Consumer{a, b, c} {
		expectEqual(receiveAck(consumer, 100), numbered(100), "contents at %s", consumer.Name())
	}
	c.Close()
	sendAll(producer, named("missed", 30))
	for _, consumer := range []pulsar.Consumer{a, b} {
		expectEqual(receiveAck(consumer, 30), named("missed", 30), "contents at %s without c", consumer.Name())
	}
	c = join("c")
	// The sentinel shows that nothing came twice and nothing is left over.
	sendAll(producer, []string{"sentinel"})
	expectEqual(receiveAck(c, 31), append(named("missed", 30), "sentinel"), "contents at c after joining again")
	for _, consumer := range []pulsar.Consumer{a, b} {
		expectEqual(receiveAck(consumer, 1), []string{"sentinel"}, "contents at %s at the end", consumer.Name())
	}
}
