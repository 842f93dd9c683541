package main

import (
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Who may send.
func registerProducers(s *suite) {
	s.add("producer-exclusive", producerExclusive)
	s.add("producer-wait-for-exclusive", producerWaitForExclusive)
	s.add("producer-name-conflict", producerNameConflict)
	s.add("deduplication", deduplication)
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

func deduplication(e *env) {
	topic := e.topic("deduplication")
	e.deduplicate(topic)
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic})
	options := pulsar.ProducerOptions{Topic: topic, Name: "one", DisableBatching: true}
	first := e.produce(options)
	numbered := func(number int64, text string) *pulsar.ProducerMessage {
		return &pulsar.ProducerMessage{Payload: []byte(text), SequenceID: &number}
	}
	for number := int64(10); number < 15; number++ {
		send(first, numbered(number, fmt.Sprint(number)))
	}
	for _, number := range []int64{12, 14} {
		send(first, numbered(number, "again"))
	}
	first.Close()
	again := e.produce(options)
	send(again, numbered(13, "again"))
	// It goes on behind the last number of its name.
	send(again, &pulsar.ProducerMessage{Payload: []byte("15")})
	expectEqual(again.LastSequenceID(), int64(15), "last sequence id of a producer that came again")
	expectEqual(receiveAck(consumer, 6), []string{"10", "11", "12", "13", "14", "15"}, "contents")
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
