package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/operator"
)

// Who is on what is wrong is told wherever it is told, and no more when it is over.
func TestTake_isToldWhileItIsWrong(t *testing.T) {
	t.Parallel()
	s := newTheatre(t, "sqlite").scene(t)
	dead(s)
	told := func(says string, want bool) {
		t.Helper()
		s.Changed()
		for _, path := range []string{"/", "/handover", "/handover?file=true", "/api/v1/findings", "/api/v1/summary"} {
			text := s.send(s.http, http.MethodGet, path, "", operator.RoleOperator, http.Header{}).text
			for _, done := range []string{`id="done"`, `id="last-acts"`} { // which has the reason of the act
				text, _, _ = strings.Cut(text, done)
			}
			if strings.Contains(text, says) != want {
				t.Errorf("%s has %q: %t, want %t: %s", path, says, !want, want, text)
			}
		}
		if out, errs, _ := here(t.Context(), append([]string{"report"}, s.flags[:4]...)...); strings.Contains(out, says) != want {
			t.Errorf("report has %q: %t, want %t: %s", says, !want, want, out+errs)
		}
	}
	told("the seat is lost", false)
	s.does(take)
	told("the seat is lost", true)
	s.does(skip)
	s.work()
	told("the seat is lost", false)
}
