package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

// receiveTime is how long to wait for a message that must come.
const receiveTime = 15 * time.Second

type clientLogger = log.Logger

// failure is what a failed expectation panics with.
type failure string

// env is what a test works with: a client of its own, names of its own, and ways to say what must be true.
type env struct {
	client pulsar.Client
	admin  string
}

func newLogger() clientLogger {
	var to io.Writer = io.Discard
	if path := os.Getenv("PHAROS_LOG"); path != "" {
		file, err := os.Create(path)
		if err != nil {
			panic(err)
		}
		to = file
	}
	return log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(to, nil)))
}

func newEnv(logger clientLogger) *env {
	return newEnvWith(logger, false)
}

// newTransactionalEnv is an env whose client makes transactions.
func newTransactionalEnv() *env {
	return newEnvWith(log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil))), true)
}

func newEnvWith(logger clientLogger, transactions bool) *env {
	options := pulsar.ClientOptions{
		URL: os.Getenv("PHAROS_URL"), OperationTimeout: 15 * time.Second, ConnectionTimeout: 10 * time.Second, Logger: logger,
		EnableTransaction: transactions,
	}
	// What a `pulsar+ssl://` URL needs: whom to trust, and the certificate to show, if there is one.
	if trust := os.Getenv("PHAROS_TLS_TRUST_CERTS"); trust != "" {
		options.TLSTrustCertsFilePath, options.TLSValidateHostname = trust, true
	}
	if certificate := os.Getenv("PHAROS_TLS_CERT"); certificate != "" {
		options.Authentication = pulsar.NewAuthenticationTLS(certificate, os.Getenv("PHAROS_TLS_KEY"))
	}
	if shown := credentials(); shown != nil {
		options.Authentication = shown
	}
	client, err := pulsar.NewClient(options)
	if err != nil {
		panic(err)
	}
	return &env{client, strings.TrimSuffix(os.Getenv("PHAROS_ADMIN"), "/")}
}

func (e *env) topic(test string) string {
	return "persistent://public/default/go-" + test + "-" + rand.Text()[:12]
}

// compact compacts the topic and waits until that is done.
func (e *env) compact(topic string) {
	url := e.admin + strings.Replace(topic, "persistent://", "/admin/v2/persistent/", 1) + "/compaction"
	ask := func(method string) (int, string) {
		request, err := http.NewRequest(method, url, nil)
		must(err, "make a request")
		answer, err := http.DefaultClient.Do(request)
		must(err, "ask for compaction")
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	code, body := ask(http.MethodPut)
	expect(code == 200 || code == 204, "compact: HTTP %d %s", code, body)
	waitUntil("the topic is compacted", func() bool {
		_, status := ask(http.MethodGet)
		expect(!strings.Contains(status, "ERROR"), "compaction: %s", status)
		return strings.Contains(status, "SUCCESS")
	})
}

func (e *env) createPartitioned(topic string, partitions int) {
	e.ask(http.MethodPut, topic, "/partitions", fmt.Sprint(partitions))
}

// Makes a topic that stores each message once, and waits until it does.
func (e *env) deduplicate(topic string) {
	e.ask(http.MethodPut, topic, "", "")
	e.ask(http.MethodPost, topic, "/deduplicationEnabled", "true")
	for end := time.Now().Add(receiveTime); !strings.Contains(e.ask(http.MethodGet, topic, "/stats", ""), `"Enabled"`); {
		expect(time.Now().Before(end), "deduplication is not turned on")
		time.Sleep(50 * time.Millisecond)
	}
}

func (e *env) ask(method, topic, path, body string) string {
	url := e.admin + strings.Replace(topic, "persistent://", "/admin/v2/persistent/", 1) + path
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	must(err, "make a request")
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	must(err, method+" "+url)
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	expect(answer.StatusCode/100 == 2, "%s %s: HTTP %d %s", method, url, answer.StatusCode, text)
	return string(text)
}

func (e *env) subscribe(options pulsar.ConsumerOptions) pulsar.Consumer {
	if options.SubscriptionName == "" {
		options.SubscriptionName = "s"
	}
	consumer, err := e.client.Subscribe(options)
	must(err, "subscribe")
	return consumer
}

func (e *env) produce(options pulsar.ProducerOptions) pulsar.Producer {
	producer, err := e.client.CreateProducer(options)
	must(err, "create a producer")
	return producer
}

// single makes a producer that sends each message alone.
func (e *env) single(topic string) pulsar.Producer {
	return e.produce(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
}

// batching makes a producer whose messages go as one batch when it is flushed, as long as they fit.
func (e *env) batching(topic string) pulsar.Producer {
	return e.produce(batchingOptions(topic))
}

func batchingOptions(topic string) pulsar.ProducerOptions {
	return pulsar.ProducerOptions{Topic: topic, BatchingMaxPublishDelay: 5 * time.Second}
}

func expect(condition bool, what string, args ...any) {
	if !condition {
		panic(failure(at() + fmt.Sprintf(what, args...)))
	}
}

func expectEqual(actual, expected any, what string, args ...any) {
	if !reflect.DeepEqual(actual, expected) {
		panic(failure(at() + fmt.Sprintf(what, args...) + ": expected " + brief(expected) + ", got " + brief(actual)))
	}
}

func must(err error, what string) {
	if err != nil {
		panic(failure(at() + what + ": " + err.Error()))
	}
}

// expectError wants an error that names `kind`, as the client prints the broker's error codes.
func expectError(err error, kind, what string) {
	if err == nil {
		panic(failure(at() + what + ": expected " + kind + ", but it succeeded"))
	}
	expect(strings.Contains(err.Error(), kind), "%s: expected %s, got %v", what, kind, err)
}

// at names the line of the test that failed.
func at() string {
	for skip := 2; ; skip++ {
		_, file, line, ok := runtime.Caller(skip)
		if !ok {
			return ""
		}
		if !strings.HasSuffix(file, "/env.go") {
			return fmt.Sprintf("%s:%d: ", file[strings.LastIndex(file, "/")+1:], line)
		}
	}
}

func brief(value any) string {
	text := fmt.Sprintf("%+v", value)
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return text
}

func waitUntil(what string, condition func() bool) {
	for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(10 * time.Millisecond) {
		expect(time.Now().Before(end), "not within 20 s: %s", what)
	}
}

// receive returns the next messages, which must come.
func receive(consumer pulsar.Consumer, count int) []pulsar.Message {
	var messages []pulsar.Message
	for len(messages) < count {
		ctx, cancel := context.WithTimeout(context.Background(), receiveTime)
		message, err := consumer.Receive(ctx)
		cancel()
		expect(err == nil, "no message within %v after %d of %d: %v", receiveTime, len(messages), count, err)
		messages = append(messages, message)
	}
	return messages
}

// receiveAck acknowledges each message and returns their contents.
func receiveAck(consumer pulsar.Consumer, count int) []string {
	messages := receive(consumer, count)
	for _, message := range messages {
		must(consumer.Ack(message), "ack")
	}
	return texts(messages)
}

// got is a message, and which of several consumers got it.
type got struct {
	consumer int
	message  pulsar.Message
}

// collect polls all consumers until `count` messages came in all.
func collect(consumers []pulsar.Consumer, count int, acknowledge bool) []got {
	var all []got
	end := time.Now().Add(20 * time.Second)
	for len(all) < count {
		expect(time.Now().Before(end), "only %d of %d messages within 20 s", len(all), count)
		for index, consumer := range consumers {
			for len(all) < count {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				message, err := consumer.Receive(ctx)
				cancel()
				if err != nil {
					break
				}
				all = append(all, got{index, message})
				if acknowledge {
					must(consumer.Ack(message), "ack")
				}
			}
		}
	}
	return all
}

// sendMessages sends without waiting for each, flushes, and returns the message ids in order.
func sendMessages(producer pulsar.Producer, messages []*pulsar.ProducerMessage) []pulsar.MessageID {
	ids := make([]pulsar.MessageID, len(messages))
	var group sync.WaitGroup
	var mutex sync.Mutex
	var failed error
	for index, message := range messages {
		group.Add(1)
		producer.SendAsync(context.Background(), message, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			defer group.Done()
			mutex.Lock()
			defer mutex.Unlock()
			ids[index] = id
			if err != nil {
				failed = err
			}
		})
	}
	must(producer.Flush(), "flush")
	group.Wait()
	must(failed, "send")
	return ids
}

func sendAll(producer pulsar.Producer, contents []string) []pulsar.MessageID {
	var messages []*pulsar.ProducerMessage
	for _, content := range contents {
		messages = append(messages, &pulsar.ProducerMessage{Payload: []byte(content)})
	}
	return sendMessages(producer, messages)
}

func send(producer pulsar.Producer, message *pulsar.ProducerMessage) pulsar.MessageID {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	id, err := producer.Send(ctx, message)
	must(err, "send")
	return id
}

func texts(messages []pulsar.Message) []string {
	var all []string
	for _, message := range messages {
		all = append(all, string(message.Payload()))
	}
	return all
}

func numbered(count int) []string { return named("m", count) }

func named(prefix string, count int) []string {
	var all []string
	for index := range count {
		all = append(all, fmt.Sprintf("%s-%d", prefix, index))
	}
	return all
}

func every[T any](all []T, step, from int) []T {
	var some []T
	for index := from; index < len(all); index += step {
		some = append(some, all[index])
	}
	return some
}
