package templates

import (
	"slices"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// A live row that no event explains has no history: its link would lead to a missing page.
func TestRowLinks_leadToRowsThatTheJournalMakes(t *testing.T) {
	t.Parallel()
	v := RunResultView{Result: outbox.RunResult{CampaignID: "c"}, Rows: map[string][]string{"p": {"row", "row"}}}
	for first, want := range map[int64][]URL{
		0: {"/campaigns/c/read-model?row=row&seq=9", ""},
		3: {"/campaigns/c/read-model?row=row&seq=3", "/campaigns/c/read-model?row=row&seq=3"},
	} {
		samples := []outbox.RowChange{{Kind: outbox.RowChanged}, {Kind: outbox.RowRemoved}}
		one := outbox.ProjectionResult{Projection: "p", Seq: 9, Comparison: &outbox.Comparison{FirstSeq: first, Samples: samples}}
		if got := v.rowLinks(Page{}, one); !slices.Equal(got, want) {
			t.Errorf("first divergence at event %d: %q, want %q", first, got, want)
		}
	}
}
