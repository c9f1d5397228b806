package overview

import (
	"slices"
	"sync"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// itemsNamed is the maximum number of objects that a finding names.
const itemsNamed = 5

// toldElsewhere are the kinds of findings that the overview has a section of its own for.
var toldElsewhere = []finding.Kind{campaign.FindsBlocked, campaign.FindsFailing, campaign.FindsLag, campaign.FindsPaused, campaign.FindsPausedHere, campaign.FindsNotDelivered}

func hasBlock(f finding.Finding) bool { return !slices.Contains(toldElsewhere, f.Kind) }

// blocks are the findings that the overview shows each in a block, the worst first.
func (v Overview) blocks() finding.List {
	return slices.DeleteFunc(v.Summary.Findings.Grouped(), func(f finding.Finding) bool { return !hasBlock(f) })
}

// ofCauses is the finding that the list of causes is about; the zero value without one.
func (v Overview) ofCauses() finding.Finding {
	if of := v.Summary.Findings.Of(campaign.FindsBlocked, campaign.FindsFailing); len(of) > 0 {
		return of[0]
	}
	return finding.Finding{}
}

func takeForm(f finding.Finding) string { return "take-" + string(f.Kind) }

// takeForms are the ids of the page's forms, also of those of findings that come while it is open.
var takeForms = sync.OnceValue(func() (forms []string) {
	for _, f := range campaign.Kinds() {
		forms = append(forms, takeForm(f))
	}
	return forms
})

// worstGuide is the document about the worst finding, unless a block has it.
func (v Overview) worstGuide() string {
	if len(v.Summary.Findings) == 0 || hasBlock(v.Summary.Findings[0]) {
		return ""
	}
	return v.Summary.Findings[0].Guide
}

// hueOf is the colour of a finding.
func hueOf(l finding.Level) string {
	return map[finding.Level]string{finding.Bad: "dead", finding.Warn: "failed", finding.Busy: "pending", finding.OK: "pending"}[l]
}

// leads reports whether the reader may use the page of a finding.
func leads(p ui.Page, f finding.Finding) bool {
	return f.Link != "" && (!f.Runs || p.Offers(operator.ActionRunStart))
}
