package runs_test

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
)

// A campaign that cannot be verified must not block the others.
func TestVerifyNext_goesOnPastWhatCannotBeVerified(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail))
	b.MustAppend(t, append(enginetest.Notes("a", 3), append(enginetest.Notes("b", 2), enginetest.Notes("c", 2)...)...)...)
	b.Drain(t)
	b.Meddle(t, `update projection_watermarks set applied_hash = 'other' where campaign_id = 'a'`)
	step := b.RunWorker.VerifyNext()
	for range 4 {
		if _, err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"b", "c"} {
		if all, err := b.Verifications(t.Context(), id); err != nil || len(all) != 1 {
			t.Errorf("campaign %q has %d verifications (%v)", id, len(all), err)
		}
	}
}
