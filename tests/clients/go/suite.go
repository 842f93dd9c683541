package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

const (
	language     = "go"
	testDeadline = 60 * time.Second
	workers      = 4
)

type test struct {
	name      string
	extension bool
	body      func(*env)
}

// suite runs its tests a few at a time, each in its own goroutine with a deadline, so that a broker that never answers costs one
// failed line and not the whole run.
type suite struct {
	tests  []test
	output sync.Mutex
	failed bool
}

func (s *suite) add(name string, body func(*env)) { s.tests = append(s.tests, test{name, false, body}) }

// addExtension adds a test that needs Pharos; stock Pulsar cannot pass it.
func (s *suite) addExtension(name string, body func(*env)) {
	s.tests = append(s.tests, test{name, true, body})
}

// run runs what the environment asks for; true when all passed.
func (s *suite) run() bool {
	only, skipExtension := os.Getenv("PHAROS_TEST_FILTER"), os.Getenv("PHAROS_SKIP_EXTENSION") == "1"
	waiting := make(chan test, len(s.tests))
	for _, t := range s.tests {
		if strings.Contains(t.name, only) && !(skipExtension && t.extension) {
			waiting <- t
		}
	}
	close(waiting)
	logger := newLogger()
	var group sync.WaitGroup
	for range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			for t := range waiting {
				started := time.Now()
				done := make(chan string, 1)
				go func() { done <- runOne(t, logger) }()
				reason := fmt.Sprintf("not finished within %v", testDeadline)
				select {
				case reason = <-done:
				case <-time.After(testDeadline):
				}
				s.report(t.name, reason, time.Since(started))
			}
		}()
	}
	group.Wait()
	return !s.failed
}

// runOne returns why the test failed, or nothing.
func runOne(t test, logger clientLogger) (reason string) {
	e := newEnv(logger)
	defer func() {
		if caught := recover(); caught != nil {
			reason = strings.Join(strings.Fields(fmt.Sprint(caught)), " ")
			if _, expected := caught.(failure); !expected {
				fmt.Fprintf(os.Stderr, "%s: %v\n%s\n", t.name, caught, debug.Stack())
			}
		}
		// Not awaited: closing waits for the broker's answer to every producer and consumer.
		go e.client.Close()
	}()
	t.body(e)
	return ""
}

func (s *suite) report(name, reason string, took time.Duration) {
	s.output.Lock()
	defer s.output.Unlock()
	if os.Getenv("PHAROS_TEST_TIMES") != "" {
		fmt.Fprintf(os.Stderr, "%s: %d ms\n", name, took.Milliseconds())
	}
	if reason == "" {
		fmt.Printf("ok %s %s\n", language, name)
		return
	}
	s.failed = true
	fmt.Printf("not ok %s %s: %s\n", language, name, reason)
}
