// The Go client against a broker; see ../README.md. Takes its settings from the environment.
package main

import "os"

func main() {
	s := &suite{}
	registerAcknowledge(s)
	registerBroadcast(s)
	registerCredentials(s)
	registerMessages(s)
	registerPlacing(s)
	registerProducers(s)
	registerRedelivery(s)
	registerSchemas(s)
	registerSubscriptions(s)
	registerTopics(s)
	registerTransactions(s)
	if !s.run() {
		os.Exit(1)
	}
}
