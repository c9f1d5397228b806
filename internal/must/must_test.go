package must_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// heard is a test that keeps what it is told.
type heard struct{ text string }

func (h *heard) Helper()                     {}
func (h *heard) Fatal(args ...any)           { h.text, _ = args[0].(string) }
func (h *heard) Errorf(_ string, arg ...any) { h.text, _ = arg[0].(string) }

func helper(h *heard) { must.OK(h, errors.New("no")) }

func nested(h *heard) { must.Hold(h, false, "%s", "no") }

func TestMust_namesTheLineOfTheTestThatCallsAHelper(t *testing.T) {
	var direct, once, twice heard
	must.OK(&direct, errors.New("no"))
	must.Equal(t, direct.text, "no")
	helper(&once)
	must.Hold(t, strings.HasPrefix(once.text, "must_test.go:26: "), "a helper says %q", once.text)
	func() { nested(&twice) }()
	must.Hold(t, strings.HasPrefix(twice.text, "must_test.go:28: "), "a helper of a helper says %q", twice.text)
}
