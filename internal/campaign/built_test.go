package campaign

import (
	"github.com/outboxweb/outboxweb/internal/must"
	"strings"
	"testing"
	"time"
)

var builtAt = time.Date(2026, 11, 26, 18, 0, 0, 0, time.UTC)

// after is some minutes after the first version was loaded.
func after(minutes int) *time.Time {
	t := builtAt.Add(time.Duration(minutes) * time.Minute)
	return &t
}

// The good version was replaced by a bad one after 10 minutes, and loaded again after 20.
func TestInstalled_namesTheVersionsThatBuiltRows(t *testing.T) {
	t.Parallel()
	loads := map[string]Load{"good": {First: *after(0), Last: *after(20)}, "bad": {First: *after(10), Last: *after(10)}}
	bad := Installed{Version: "bad", At: *after(10), Built: []string{"good"}, Loads: map[string]Load{"good": {First: *after(0), Last: *after(0)}, "bad": loads["bad"]}}
	back := Installed{Version: "good", At: *after(20), Built: []string{"good", "bad"}, Loads: loads}
	for name, c := range map[string]struct {
		got  RowsBuilt
		by   string
		only string
	}{
		"before the deploy":                {Installed{Version: "good", At: *after(0), Built: []string{"good"}, Loads: loads}.Rows("good"), "by the loaded version", "good"},
		"after it":                         {bad.Rows("bad"), "by version good", "good"},
		"there, untouched":                 {bad.RowsOf("bad", time.Time{}, after(5)), "by version good", "good"},
		"there, after it applied events":   {bad.RowsOf("bad", time.Time{}, after(15)), "by versions good and bad", ""},
		"after going back":                 {back.Rows("good"), "by versions good and bad", ""},
		"there, never touched by the bad":  {back.RowsOf("good", time.Time{}, after(5)), "by the loaded version", "good"},
		"there, where the bad had events":  {back.RowsOf("good", time.Time{}, after(15)), "by versions good and bad", ""},
		"there, if nothing is known":       {back.RowsOf("good", time.Time{}, nil), "by versions good and bad", ""},
		"of a campaign begun under it":     {bad.RowsOf("bad", *after(12), after(15)), "by the loaded version", "bad"},
		"begun before, applied under it":   {bad.RowsOf("bad", *after(9), after(15)), "by versions good and bad", ""},
		"begun after going back":           {back.RowsOf("good", *after(21), after(25)), "by the loaded version", "good"},
		"begun between the two":            {back.RowsOf("good", *after(15), after(25)), "by versions good and bad", ""},
		"if loads are not known":           {Installed{Version: "bad", At: *after(10), Built: []string{"good"}}.RowsOf("bad", *after(12), after(15)), "by versions good and bad", ""},
		"where it is not loaded elsewhere": {Installed{Built: []string{"good"}}.Rows("good"), "by version good", ""},
		"nobody knows":                     {Installed{Version: "good"}.Rows("good"), "by an unknown version, or without earlier events", ""},
		"not installed":                    {Installed{}.Rows("good"), "by the loaded version", ""},
	} {
		must.Hold(t, c.got.By() == c.by && c.got.BuiltVersion == c.only, "%s: %s, only %q, want %s, only %q", name, c.got.By(), c.got.BuiltVersion, c.by, c.only)
	}
}

func TestRowsBuilt_saysWhatIsLoadedAndSinceWhen(t *testing.T) {
	t.Parallel()
	b := Installed{Version: "good", At: *after(20), Built: []string{"good", "bad"}, Loads: map[string]Load{"good": {Last: *after(20)}, "bad": {Last: *after(10)}}}.Rows("good")
	must.Equal(t, b.Sentence("revenue", "good"), "Rows of projection revenue were built by versions good and bad (loaded 2026-11-26 18:10:00 UTC). Version good is loaded now, since 2026-11-26 18:20:00 UTC.")
	must.Equal(t, b.ByNow("good"), b.By(), "after going back")
	b = Installed{Version: "bad", At: *after(10), Built: []string{"good"}, Loads: map[string]Load{"good": {Last: *after(0)}, "bad": {Last: *after(10)}}}.Rows("bad")
	got := b.Sentence("revenue", "bad")
	must.Hold(t, strings.HasSuffix(got, "Version bad is loaded now, since 2026-11-26 18:10:00 UTC, and builds what is applied since then."), "of a version that no row is known of: %s", got)
	must.Equal(t, b.ByNow("bad"), "by version good, and since by the loaded version bad", "of a version that no row is known of")
	r := ReplayedWith{Version: "bad", RowsBuilt: b}
	must.Equal(t, r.Versions(), "replayed with version bad, rows built by version good")
	must.Equal(t, r.Doubt(), r.Versions()+": a value shown here may never have been there")
	r = ReplayedWith{Version: "good", RowsBuilt: RowsBuilt{BuiltVersion: "good"}}
	must.Equal(t, r.Versions(), "replayed with version good, which built the rows")
	must.Equal(t, r.Doubt(), "", "the doubt about rows of the version that they were replayed with")
	must.Equal(t, (RowsBuilt{}).Sentence("revenue", "good"), "", "of rows of the loaded version")
}
