package readmodel_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
)

func TestFailures_arePagedNewestFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b"} {
		f.AppendN(id, 3)
	}
	f.Drain()
	for seq := range int64(3) {
		f.Fails("roster", "a", seq+1)
		f.Fails("history", "b", seq+1)
		f.Fails("history", "b", seq+1)
	}
	if err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { return tx.Resolve("b", 2) }); err != nil {
		t.Fatal(err)
	}
	read := func(filter outbox.FailureFilter) (seen []string) {
		filter.Limit = 1
		for {
			page, err := f.Failures(f.Ctx, filter)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range page.Items {
				seen = append(seen, fmt.Sprint(p.CampaignID, p.Seq, p.Status, p.Attempts))
			}
			if page.NextCursor == nil {
				return seen
			}
			filter.Cursor = *page.NextCursor
		}
	}
	for _, c := range []struct {
		filter outbox.FailureFilter
		want   string
	}{
		{outbox.FailureFilter{}, "b3open2 a3open1 b2resolved2 a2open1 b1resolved2 a1open1"},
		{outbox.FailureFilter{Status: outbox.FailureOpen}, "b3open2 a3open1 a2open1 a1open1"},
		{outbox.FailureFilter{Status: outbox.FailureResolved}, "b2resolved2 b1resolved2"},
		{outbox.FailureFilter{CampaignID: "b"}, "b3open2 b2resolved2 b1resolved2"},
		{outbox.FailureFilter{CampaignID: "b", Status: outbox.FailureOpen}, "b3open2"},
		{outbox.FailureFilter{Projection: "roster"}, "a3open1 a2open1 a1open1"},
		{outbox.FailureFilter{Fingerprint: "other"}, ""},
	} {
		if got := strings.Join(read(c.filter), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.filter, got, c.want)
		}
	}
	f.Sound()
	f.Fails("history", "b", 1) // again, after it was resolved
	if got := read(outbox.FailureFilter{CampaignID: "b"}); got[0] != "b1open1" || len(got) != 4 {
		t.Errorf("failures %q, want a new one for the event that was passed before", got)
	}
}
