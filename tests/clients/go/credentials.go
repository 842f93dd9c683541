package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// registerCredentials adds what is about credentials that expire while a consumer listens; it runs only where run.sh was told which
// credentials to show.
func registerCredentials(s *suite) {
	seconds, err := strconv.ParseFloat(os.Getenv("PHAROS_AUTH_SECONDS"), 64)
	if err != nil {
		return
	}
	s.add("credentials-long-consume", func(e *env) {
		topic := e.topic("credentials")
		consumer, producer := e.subscribe(pulsar.ConsumerOptions{Topic: topic}), e.single(topic)
		end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
		for index := 0; time.Now().Before(end); index++ {
			content := fmt.Sprintf("m-%d", index)
			send(producer, &pulsar.ProducerMessage{Payload: []byte(content)})
			message := receive(consumer, 1)[0]
			expectEqual(string(message.Payload()), content, "the next message")
			expectEqual(message.RedeliveryCount(), uint32(0), "redelivery count")
			must(consumer.Ack(message), "ack")
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// credentials are those that run.sh was told to show; nil for none.
func credentials() pulsar.Authentication {
	var shown pulsar.Authentication
	var err error
	switch os.Getenv("PHAROS_AUTH") {
	case "token":
		shown = pulsar.NewAuthenticationTokenFromFile(os.Getenv("PHAROS_AUTH_TOKEN_FILE"))
	case "basic":
		shown, err = pulsar.NewAuthenticationBasic(os.Getenv("PHAROS_AUTH_USER"), os.Getenv("PHAROS_AUTH_PASSWORD"))
	case "oauth2":
		shown = pulsar.NewAuthenticationOAuth2(map[string]string{
			"type": "client_credentials", "issuerUrl": os.Getenv("PHAROS_AUTH_ISSUER"), "audience": os.Getenv("PHAROS_AUTH_AUDIENCE"),
			"privateKey": "file://" + os.Getenv("PHAROS_AUTH_KEY_FILE"), "clientId": os.Getenv("PHAROS_AUTH_USER"),
		})
	}
	must(err, "credentials")
	return shown
}
