package charts

import (
	"cmp"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// charts are the main charts and those of series, with those of the earlier period beside them.
func (v ChartsView) charts(p ui.Page) (main, series []Chart) {
	main, series = MainCharts(p, v.Summary, v.History), SeriesCharts(p, v.History, "")
	if v.Beside != nil {
		lay(main, MainCharts(p, v.Summary, *v.Beside), v.Asked)
		lay(series, SeriesCharts(p, *v.Beside, ""), v.Asked)
	}
	return main, series
}

// lay puts the charts of an earlier period, which the word chose, beside those of the same name that have
// one series, a sum or one that leads the others.
func lay(all, earlier []Chart, word string) {
	for i, c := range all {
		at, label := slices.IndexFunc(earlier, func(e Chart) bool { return e.name == c.name }), c.peakOf
		if at < 0 {
			continue
		}
		if len(c.layers) == 1 {
			label = c.layers[0].label
		}
		e := earlier[at]
		if e.shape == areas {
			label, e.shape, e.layers = "all", steps, []layer{{label: "all", values: e.totals()}}
		}
		if same := slices.IndexFunc(e.layers, func(l layer) bool { return l.label == label }); same >= 0 {
			label += ", " + besideWords(word)
			e.name, e.layers = c.name+": "+label+", "+rangeWords(e.window), []layer{{class: "l-beside", label: label, values: e.layers[same].values}}
			all[i].beside = &e
		}
	}
}

// besideWords say when a period was that is shown beside another.
func besideWords(word string) string {
	return cmp.Or(map[string]string{"1h": "an hour earlier", "24h": "a day earlier", "168h": "a week earlier"}[word], "before")
}

// withBeside are charts, each before what is beside it.
func withBeside(charts ...Chart) (all []Chart) {
	for _, c := range charts {
		if all = append(all, c); c.beside != nil {
			all = append(all, *c.beside)
		}
	}
	return all
}

// besideMarker are the charts after a marker until the end of a history, beside those of as long before it.
func besideMarker(p ui.Page, h samples.History, m samples.Marker) ui.URL {
	to := h.To
	if least := m.At.Add(samples.MinRange); to.Before(least) {
		to = least
	}
	return ui.Beside(ui.Over(p.Links.Charts(), samples.Range{From: m.At, To: to}), m.At.Format(time.RFC3339))
}
