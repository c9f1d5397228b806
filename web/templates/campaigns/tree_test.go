package campaigns

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/cputest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// written is a tree that shows everything, written as JSON again.
func written(n node) string {
	var b strings.Builder
	switch n.Kind {
	case '{', '[':
		b.WriteByte(n.Kind)
		for i, m := range n.Members {
			if i > 0 {
				b.WriteByte(',')
			}
			if n.Kind == '{' {
				b.WriteString(m.Key + ":")
			}
			b.WriteString(written(m))
		}
		b.WriteByte(n.Kind + 2) // } follows { by two, and so does ] on [
	default:
		b.WriteString(n.Text)
	}
	return b.String()
}

func mustTree(t rapid.TB, document, pointer string, from int) Tree {
	tree, err := ReadTree(document, pointer, from)
	must.Need(t, err == nil, "%.200s at %q from %d: %v", document, pointer, from, err)
	return tree
}

func drawJSON(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	quoted := func(s string) string {
		return string(must.Get(json.Marshal(strings.ToValidUTF8(s, ""))).Or(t))
	}
	switch kind {
	case 0:
		return quoted(rapid.String().Draw(t, "text"))
	case 1:
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,4})?`).Draw(t, "number")
	case 2:
		return rapid.SampledFrom([]string{"true", "false", "null", "{}", "[]"}).Draw(t, "word")
	case 3:
		return quoted(rapid.SampledFrom([]string{`\`, `"`, `\"`, `{"`, "a/b~c", "~1", "~#2", "\u202e", "\n"}).Draw(t, "odd"))
	}
	var parts []string
	for i := range rapid.IntRange(0, 4).Draw(t, "members") {
		part := drawJSON(t, depth-1)
		if kind == 5 {
			key := rapid.SampledFrom([]string{"a", "b", "a/b", "~", "~#2", "", "\u202e", `"`, `\`, "é"}).Draw(t, fmt.Sprint("key", i))
			part = quoted(key) + ":" + part
		}
		parts = append(parts, part)
	}
	if kind == 5 {
		return "{" + strings.Join(parts, ",") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// Whatever the document is, the tree shows all of it, in order, and each value is found again by its pointer, even under a duplicate key.
func TestReadTree_isTheDocumentAndItsPointersLeadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		document := drawJSON(t, 3)
		root := mustTree(t, document, "", 0).root
		got, want := written(root), ui.Visible(document)
		must.Need(t, got == want || !everythingFits(root), "%s is shown as %s", document, got)
		var look func(node)
		look = func(n node) {
			if n.Kind == '{' || n.Kind == '[' {
				found := mustTree(t, document, n.Pointer, 0).root
				must.Need(t, !everythingFits(n) || written(found) == written(n), "%s: at %q is %s, want %s", document, n.Pointer, written(found), written(n))
			}
			for _, m := range n.Members {
				look(m)
			}
		}
		look(root)
	})
}

func everythingFits(n node) bool {
	fits := len(n.Members) == n.Total && n.Rest == 0
	for _, m := range n.Members {
		fits = fits && everythingFits(m)
	}
	return fits
}

func TestReadTree_leavesOutSpacesAndTellsMembersWithOneKeyApart(t *testing.T) {
	t.Parallel()
	spaced := " { \"a\" : [ 1 , {\"b\":\t2}\n] , \"c\":[ ],\"d\":{ } }\n"
	must.Equal(t, written(mustTree(t, spaced, "", 0).root), `{"a":[1,{"b":2}],"c":[],"d":{}}`)
	document := `{"a":{"n":1},"\u0061":{"n":2},"a~#2":{"n":3},"a":{"n":4}}`
	for i, m := range mustTree(t, document, "", 0).root.Members {
		must.Equal(t, m.Pointer, []string{"/a", "/a~#2", "/a~0#2", "/a~#3"}[i], "the pointer of a member")
		must.Equal(t, written(mustTree(t, document, m.Pointer, 0).root), fmt.Sprintf(`{"n":%d}`, i+1), "at", m.Pointer)
	}
}

func TestReadTree_refusesPlacesThatAreNotThere(t *testing.T) {
	t.Parallel()
	for _, pointer := range []string{"x", "/b", "/a/2", "/a/00", "/a/-1", "/a/0/x", "/a/", "/~#2", "/c~#3", "/é/x", "/a~#"} {
		_, err := ReadTree(`{"a":[1,2],"c":1,"c":2,"é":"x"}`, pointer, 0)
		nowhere, ok := errors.AsType[*NoPlace](err)
		must.Hold(t, ok && nowhere.Pointer == pointer, "%q: %v", pointer, err)
	}
	_, err := ReadTree(`[1,2]`, "", 2)
	must.Hold(t, err != nil, "from behind the last member on there is something")
	for _, damaged := range []string{"", "{", `{"a"`, `{"a":`, `{"a":1`, `["x`, `{1:2}`, `[1`, `{"a":[}`, `"\`, "}", `{"a" 1}`} {
		tree, err := ReadTree(damaged, "", 0)
		must.Hold(t, err != nil, "%q is shown as %s", damaged, written(tree.root))
	}
}

func shownValues(n node) int {
	sum := 1
	for _, m := range n.Members {
		sum += shownValues(m)
	}
	return sum
}

func levels(n node) int {
	deepest := 0
	for _, m := range n.Members {
		deepest = max(deepest, levels(m))
	}
	return 1 + deepest
}

func TestReadTree_boundsWhatAFragmentShows(t *testing.T) {
	t.Parallel()
	list := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	for name, c := range map[string]struct {
		document string
		shown    int // members of the root
	}{
		"many":              {list(25_000, "1"), 100},
		"many with some":    {list(25_000, `{"a":[1,2,{"b":3}]}`), 100},
		"many with many":    {list(300, list(300, "1")), 100},
		"one with many":     {`{"items":` + list(25_000, "1") + `}`, 1},
		"deep":              {strings.Repeat("[", 9000) + strings.Repeat("]", 9000), 1},
		"deep with many":    {strings.Repeat(`{"a":`, 30) + list(5000, "1") + strings.Repeat("}", 30), 1},
		"one after another": {`{"a":` + list(90, "1") + `,"b":` + list(90, "1") + `,"c":` + list(90, "1") + `}`, 3},
	} {
		root := mustTree(t, c.document, "", 0).root
		deep, n := levels(root), shownValues(root)
		must.Hold(t, deep <= treeDepth+1 && n <= treeNodes && len(root.Members) == c.shown, "%s: %d levels, %d values, %d members of the root, want at most %d, %d and %d", name, deep, n, len(root.Members), treeDepth+1, treeNodes, c.shown)
	}
	root := mustTree(t, `{"items":`+list(25_000, "1")+`}`, "", 0).root
	items := root.Members[0]
	must.Hold(t, len(items.Members) == 100 && !items.Open && items.Next() == 100 && items.more() == "next 100 of 25,000", "of the items %d are shown, open: %t, then %q", len(items.Members), items.Open, items.more())
	small := mustTree(t, `{"a":`+list(50, "1")+`,"b":`+list(70, "1")+`}`, "", 0).root
	must.Hold(t, small.Open && small.Members[0].Open && !small.Members[1].Open, "small values are open and larger ones are not")
}

func TestShownText_cutsAtACharacterAndSaysHowManyAreLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stored string
		most   int
		text   string
		rest   int
	}{
		{`"abc"`, 5, `"abc"`, 0}, {`"éééééééééé"`, 4, `"ééé`, 8}, {`"a\u00e9\nbc"`, 4, `"a\u00e9\n`, 3}, {`"\\\\\\"`, 4, `"\\\\\\`, 1},
		{`"日本語です"`, 4, `"日本語`, 3}, {"12345678901234567890", 4, "1234", 16}, {`"\ud83d\ude00x"`, 2, `"\ud83d`, 8}, {`"\u00`, 9, `"\u00`, 0},
	} {
		text, rest := shownText(c.stored, c.most)
		must.Hold(t, text == c.text && rest == c.rest, "%s is cut to %s, and %d more; want %s and %d", c.stored, text, rest, c.text, c.rest)
	}
	long := mustTree(t, `"`+strings.Repeat("x", 14_345)+`"`, "", 0).root
	must.Hold(t, len(long.Text) == treeText && long.Rest == 12_347, "%d characters are shown and %d are not", len(long.Text), long.Rest)
}

// A document of 25 MB is scanned once, and nothing of it is copied but what is shown.
func TestReadTree_ofALargeDocumentIsCheap(t *testing.T) { // not parallel: it counts allocations
	document := func(items int) string {
		return `{"items":[` + strings.Repeat(`{"a":9007199254740993,"b":"text \"with\" escapes"},`, items) + `0]}`
	}
	const items = 25 << 20 / 52
	whole, small := document(items), document(items/cputest.Parts)
	allocated := testing.AllocsPerRun(1, func() { mustTree(t, whole, "/items", 400_000) })
	must.Hold(t, allocated <= 3000, "%d bytes took %v allocations", len(whole), allocated)
	cputest.InProportion(t, "to seek an item", func() { mustTree(t, small, "/items", 400_000/cputest.Parts) }, func() { mustTree(t, whole, "/items", 400_000) })
}
