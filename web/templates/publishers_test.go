package templates

import (
	"strings"
	"testing"
	"time"

	"outboxweb/internal/outbox"
)

func TestJudgePublishers_worstFirstAndPausesAreNoTrouble(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	held := &outbox.Lease{ExpiresAt: now.Add(time.Minute)}
	well := outbox.Publisher{Status: outbox.PublisherActive, Lease: held}
	with := func(change func(*outbox.Publisher)) outbox.Publisher {
		p := well
		change(&p)
		return p
	}
	behind := with(func(p *outbox.Publisher) { p.LagEvents = 3 })
	retrying := with(func(p *outbox.Publisher) { p.ErrorCount = 1 })
	failed := with(func(p *outbox.Publisher) { p.Status = outbox.PublisherFailed })
	stopped := with(func(p *outbox.Publisher) { p.Status, p.Stopped = outbox.PublisherFailed, true })
	paused := with(func(p *outbox.Publisher) { p.Status, p.LagEvents = outbox.PublisherPaused, 9 })
	idle := with(func(p *outbox.Publisher) { p.Lease = nil })
	left := with(func(p *outbox.Publisher) { p.Lease, p.LagEvents = nil, 1 })
	unknown := with(func(p *outbox.Publisher) { p.Lease, p.LagCapped = nil, true })
	for _, c := range []struct {
		list  []outbox.Publisher
		level string
		says  string
	}{
		{[]outbox.Publisher{well}, "ok", "The only publisher is up to date."},
		{[]outbox.Publisher{behind}, "ok", "The only publisher is delivering what waits."},
		{[]outbox.Publisher{well, well}, "ok", "All 2 publishers are up to date."},
		{[]outbox.Publisher{well, behind, behind}, "ok", "All 3 publishers deliver; events wait for 2 of them."},
		{[]outbox.Publisher{paused}, "ok", "The only publisher is paused."},
		{[]outbox.Publisher{paused, well}, "ok", "1 of 2 publishers is up to date. 1 is paused."},
		{[]outbox.Publisher{paused, well, behind}, "ok", "2 of 3 publishers deliver; events wait for 1 of them. 1 is paused."},
		{[]outbox.Publisher{paused, paused}, "ok", "None of 2 publishers delivers. 2 are paused."},
		{[]outbox.Publisher{idle, well}, "ok", "1 of 2 publishers is up to date. 1 is held by no running server, and has nothing to deliver."},
		{[]outbox.Publisher{left, well}, "warn", "1 of 2 publishers is held by no running server while events wait."},
		{[]outbox.Publisher{unknown, well}, "warn", "1 of 2 publishers is held by no running server while events wait."},
		{[]outbox.Publisher{retrying}, "warn", "The only publisher had an error and tries again."},
		{[]outbox.Publisher{retrying, failed, failed, stopped, paused, well}, "bad", "1 of 6 publishers is stopped: its destination says it is gone. 2 have failed. 1 had an error and tries again. 1 is paused."},
		{[]outbox.Publisher{failed, failed}, "bad", "2 of 2 publishers have failed."},
	} {
		h := JudgePublishers(c.list, now)
		if says := strings.Join(append([]string{h.Sentence}, h.Notes...), " "); h.Level != c.level || says != c.says {
			t.Errorf("%s: %q, want %s: %q", h.Level, says, c.level, c.says)
		}
		if troubled := len(troubledPublishers(c.list, now)) > 0; troubled != (c.level != "ok") {
			t.Errorf("%q: in trouble: %v", c.says, troubled)
		}
	}
}

func TestLagText_saysHowMuchIsKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p          outbox.Publisher
		text, note string
	}{
		{outbox.Publisher{}, "0", ""},
		{outbox.Publisher{LagEvents: 1204, LagSeconds: 70}, "1,204", "the first waits for 1 min"},
		{outbox.Publisher{LagEvents: 1204, LagSeconds: 70, LagCapped: true}, "at least 1,204", "the first waits for 1 min"},
		{outbox.Publisher{LagCapped: true}, "not known", "no event of the topic among the next ones, which is as far as was looked"},
	} {
		if text, note := lagText(c.p), lagNote(c.p); text != c.text || note != c.note {
			t.Errorf("%q, %q, want %q, %q", text, note, c.text, c.note)
		}
	}
}
