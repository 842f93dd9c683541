package main

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Who may send.
func registerProducers(s *suite) {
	s.add("producer-exclusive", producerExclusive)
	s.add("producer-wait-for-exclusive", producerWaitForExclusive)
	s.add("producer-name-conflict", producerNameConflict)
}

func producerExclusive(e *env) {
	topic := e.topic("exclusive-producer")
	options := pulsar.ProducerOptions{Topic: topic, ProducerAccessMode: pulsar.ProducerAccessModeExclusive}
	first := e.produce(options)
	_, err := e.client.CreateProducer(options)
	expectError(err, "ProducerFenced", "a second exclusive producer")
	_, err = e.client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	expectError(err, "ProducerBusy", "a shared producer beside an exclusive one")
	send(first, &pulsar.ProducerMessage{Payload: []byte("still mine")})
	first.Close()
	send(e.produce(options), &pulsar.ProducerMessage{Payload: []byte("mine now")})
}

func producerWaitForExclusive(e *env) {
	topic := e.topic("waiting-producer")
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic})
	first := e.produce(pulsar.ProducerOptions{Topic: topic, ProducerAccessMode: pulsar.ProducerAccessModeExclusive})
	type outcome struct {
		producer pulsar.Producer
		err      error
	}
	waiting := make(chan outcome, 1)
	go func() {
		producer, err := e.client.CreateProducer(
			pulsar.ProducerOptions{Topic: topic, ProducerAccessMode: pulsar.ProducerAccessModeWaitForExclusive})
		waiting <- outcome{producer, err}
	}()
	send(first, &pulsar.ProducerMessage{Payload: []byte("first")})
	select {
	case early := <-waiting:
		expect(false, "the waiting producer did not wait: %v", early.err)
	case <-time.After(500 * time.Millisecond):
	}
	first.Close()
	select {
	case second := <-waiting:
		must(second.err, "the waiting producer")
		send(second.producer, &pulsar.ProducerMessage{Payload: []byte("second")})
	case <-time.After(receiveTime):
		expect(false, "the waiting producer did not get its turn")
	}
	expectEqual(receiveAck(consumer, 2), []string{"first", "second"}, "contents")
}

func producerNameConflict(e *env) {
	topic := e.topic("producer-name")
	options := pulsar.ProducerOptions{Topic: topic, Name: "one"}
	first := e.produce(options)
	expectEqual(first.Name(), "one", "producer name")
	_, err := e.client.CreateProducer(options)
	expectError(err, "ProducerBusy", "the same producer name")
	first.Close()
	e.produce(options)
	a, b := e.single(topic).Name(), e.single(topic).Name()
	expect(a != "" && a != b, "names given by the broker: %q, %q", a, b)
}
