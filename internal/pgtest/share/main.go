// Command share runs a command, such as go test, beside a PostgreSQL server
// that the tests of all packages use (see pgtest.Shared). Without PostgreSQL it
// runs the command alone: the tests that need it say what is missing.
//
//	go run ./internal/pgtest/share go test ./...
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/outboxweb/outboxweb/internal/pgtest"
)

func main() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if server, err := pgtest.Start(); err == nil {
		cmd.Env = append(os.Environ(), server.AsShared())
		defer server.Stop()
	}
	err := cmd.Run()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil {
		defer os.Exit(1)
	}
}
