package main

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	readingFields = `{"name":"sensor","type":"string"},{"name":"value","type":"int"}`
	unitField     = `{"name":"unit","type":"string","default":"K"}`
)

// reading is what most of these tests send.
type reading struct {
	Sensor string `json:"sensor" avro:"sensor"`
	Value  int    `json:"value" avro:"value"`
}

func record(fields string) string {
	return `{"type":"record","name":"Reading","namespace":"clients","fields":[` + fields + `]}`
}

// Typed messages.
func registerSchemas(s *suite) {
	s.add("schema-avro", func(e *env) {
		typed(e, pulsar.NewAvroSchema(record(readingFields), nil), pulsar.NewAvroSchema(record(`{"name":"sensor","type":"long"}`), nil))
	})
	s.add("schema-json", func(e *env) {
		typed(e, pulsar.NewJSONSchema(record(readingFields), nil), pulsar.NewJSONSchema(record(`{"name":"sensor","type":"long"}`), nil))
	})
	s.add("schema-string", schemaString)
	s.add("schema-avro-evolution", schemaEvolution)
}

func version(message pulsar.Message) uint64 {
	expectEqual(len(message.SchemaVersion()), 8, "bytes of the schema version on the message")
	return binary.BigEndian.Uint64(message.SchemaVersion())
}

func typed(e *env, schema, incompatible pulsar.Schema) {
	topic := e.topic("schema")
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic, Schema: schema})
	producer := e.produce(pulsar.ProducerOptions{Topic: topic, Schema: schema})
	for index := range 10 {
		send(producer, &pulsar.ProducerMessage{Value: &reading{fmt.Sprintf("s-%d", index), index}})
	}
	for index, message := range receive(consumer, 10) {
		var value reading
		must(message.GetSchemaValue(&value), "decode")
		expectEqual(value, reading{fmt.Sprintf("s-%d", index), index}, "value")
		expectEqual(version(message), uint64(0), "schema version")
		must(consumer.Ack(message), "ack")
	}
	_, err := e.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: incompatible})
	expectError(err, "IncompatibleSchema", "a producer with an incompatible schema")
}

func schemaString(e *env) {
	topic := e.topic("schema-string")
	schema := pulsar.NewStringSchema(nil)
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic, Schema: schema})
	text := "grüße"
	send(e.produce(pulsar.ProducerOptions{Topic: topic, Schema: schema}), &pulsar.ProducerMessage{Value: text})
	message := receive(consumer, 1)[0]
	var value *string
	must(message.GetSchemaValue(&value), "decode")
	expectEqual(*value, text, "value")
	expectEqual(version(message), uint64(0), "schema version")
}

func schemaEvolution(e *env) {
	topic := e.topic("schema-evolution")
	first := pulsar.NewAvroSchema(record(readingFields), nil)
	second := pulsar.NewAvroSchema(record(readingFields+","+unitField), nil)
	type withUnit struct {
		Sensor string `avro:"sensor"`
		Value  int    `avro:"value"`
		Unit   string `avro:"unit"`
	}
	consumer := e.subscribe(pulsar.ConsumerOptions{Topic: topic})
	send(e.produce(pulsar.ProducerOptions{Topic: topic, Schema: first}), &pulsar.ProducerMessage{Value: &reading{"a", 1}})
	send(e.produce(pulsar.ProducerOptions{Topic: topic, Schema: second}), &pulsar.ProducerMessage{Value: &withUnit{"b", 2, "C"}})
	// A definition that is known already is not a new version.
	send(e.produce(pulsar.ProducerOptions{Topic: topic, Schema: first}), &pulsar.ProducerMessage{Value: &reading{"c", 3}})
	for index, message := range receive(consumer, 3) {
		expectEqual(version(message), []uint64{0, 1, 0}[index], "schema version")
	}
}
