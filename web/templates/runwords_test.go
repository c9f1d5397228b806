package templates

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// A projection may fail in a campaign in which others were rebuilt.
func TestRunSentences_ofARebuildPromiseNoMoreThanItDoes(t *testing.T) {
	t.Parallel()
	if text := runLeft(outbox.Run{Kind: outbox.RunRebuild}); !strings.Contains(text, "failed projections keep their rows") || !strings.Contains(text, "may have been rebuilt") {
		t.Error(text)
	}
	paused := outbox.Run{Kind: outbox.RunRebuild, Campaigns: outbox.Progress{Done: 2, Total: 2}, Counts: outbox.RunCounts{Matched: 1, NotCompared: 1}}
	if text := runOutcome(Page{}, paused); text != "Rebuilt. No rows differed before. In 1 of 2 campaigns, a paused projection lacks events." {
		t.Error(text)
	}
}
