package main

import (
	"errors"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/pgtest"
)

// Several processes may be started at once on a fresh database.
func TestOpenShop_manyAtOnce(t *testing.T) {
	t.Parallel()
	server := must.Get(pgtest.Start()).Or(t)
	t.Cleanup(func() { _ = server.Stop() })
	must.OK(t, server.CreateDatabase(t.Context(), "shop"))
	opened := make(chan error)
	const many = 8
	for range many {
		go func() {
			s, err := openShop(t.Context(), server.URL("shop"))
			if err == nil {
				err = s.Close()
			}
			opened <- err
		}()
	}
	var err error
	for range many {
		err = errors.Join(err, <-opened)
	}
	must.OK(t, err)
}
