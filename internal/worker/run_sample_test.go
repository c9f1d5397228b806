package worker_test

import "testing"

// What cannot be verified must not keep the others out.
func TestVerifyNext_goesOnPastWhatCannotBeVerified(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail))
	b.mustAppend(t, append(notes("a", 3), append(notes("b", 2), notes("c", 2)...)...)...)
	b.drain(t)
	b.meddle(t, `update projection_watermarks set applied_hash = 'other' where campaign_id = 'a'`)
	step := b.runWorker.VerifyNext()
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
