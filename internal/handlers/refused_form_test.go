package handlers

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A refused form is answered with its page: the error is at the form, and the input is still in it.
func TestRefusedForm_keepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	const long = 501
	s := newSite(t)
	s.seed("c-1", "a", poison, "b")
	s.seed("c-2", poison)
	s.withPublisher(1)
	s.work()
	typed := `it's "late" & <soon>`
	_, after, _ := strings.Cut(s.get("/failures").body, `name="fingerprint" value="`)
	fingerprint, _, _ := strings.Cut(after, `"`)
	tooLong := strings.Repeat("x", long)
	for _, form := range []struct{ page, path, fields, keeps string }{
		{"/campaigns/c-1/events/2", "/rows/c-1/2/requeue", "expected_status=dead&reason=" + tooLong, tooLong},
		{"/campaigns/c-1/events/2", "/rows/c-1/2/skip", "expected_status=dead&confirm=skip&reason=" + url.QueryEscape(typed), typed},
		{"/rows/c-1/2/requeue", "/rows/c-1/2/requeue", "expected_status=dead&reason=" + tooLong, tooLong},
		{"/campaigns/c-1", "/campaigns/c-1/pause", "reason=" + tooLong, tooLong},
		{"/campaigns/c-1", "/rows/c-1/2/requeue", "expected_status=dead&return_to=campaign&reason=" + tooLong, tooLong},
		{"/projections/campaigns", "/projections/campaigns/pause", "reason=" + tooLong, tooLong},
		{archivePage, archivePage + "/pause", "reason=" + tooLong, tooLong},
		{seekPath + "?to=head", seekPath, "to=head&expected_repeats=0&expected_skips=0&reason=" + tooLong, tooLong},
		{"/runs/new?kind=verify&all=1", "/runs", "kind=verify&all=1&rate=fast&reason=" + url.QueryEscape(typed), "fast"},
		{"/operations/new", "/operations", "expected_rows=2&expected_released=1&campaign=&event_type=&fingerprint=&limit=&reason=" + tooLong, tooLong},
		{"/failures", "/failures/groups/note", "fingerprint=" + url.QueryEscape(html.UnescapeString(fingerprint)) + "&note=" + strings.Repeat("n", 2001), strings.Repeat("n", 2001)},
		{"/campaigns/c-1/events/1?tab=payload", "/campaigns/c-1/events/1/reveal", "reason=" + tooLong, tooLong},
	} {
		t.Run(form.page+" "+form.path, func(t *testing.T) {
			value := ` value="` + strings.NewReplacer("&", "&amp;", `"`, "&#34;", "'", "&#39;", "<", "&lt;", ">", "&gt;").Replace(form.keeps) + `"`
			from := header("Referer", "http://127.0.0.1:8080"+form.page)
			a := s.submit(form.path, form.fields, from).want(t, 422, `role="alert"`, value, `aria-invalid="true"`)
			if strings.Count(a.body, `role="alert"`) != 1 {
				t.Error("the refusal is not there once")
			}
			if before, _, _ := strings.Cut(a.body, `role="alert"`); strings.LastIndex(before, "<form") < strings.LastIndex(before, "</form>") {
				t.Error("the refusal does not stand in the form")
			}
			// The page now has another address; the form still has its own.
			again := strings.Contains(a.body, `name="form_page" value="`+strings.ReplaceAll("http://127.0.0.1:8080"+form.page, "&", "&amp;")+`"`)
			if !again {
				t.Error("the form does not say on which page it is")
			}
			from = header("Referer", "http://127.0.0.1:8080"+form.path)
			s.submit(form.path, form.fields+"&form_page="+url.QueryEscape("http://127.0.0.1:8080"+form.page), from).want(t, 422, value)

			// Scripts get the same without a line in the browser's console.
			told := s.submit(form.path, form.fields, header("Referer", "http://127.0.0.1:8080"+form.page), header("HX-Request", "true")).want(t, 200, `role="alert"`, value)
			if told.Header.Get("Outboxweb-Status") != "422" || told.Header.Get("HX-Push-Url") != "false" {
				t.Errorf("scripts are told %v", told.Header)
			}
		})
	}
	s.get("/api/v1/audit?outcome=done").want(t, 200, `"items":[]`)
}

// A form is found again under any name, below a base path and a proxy's prefix.
func TestRefusedForm_ofOddNamesBelowAPrefix(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) {
		c.BasePath = "/base"
		c.Trusts = func(*http.Request) bool { return true }
	})
	const odd = "a/b c%20\"<i>'&?#;.ü"
	s.seed(odd, poison)
	s.work()
	path := "/rows/" + url.PathEscape(odd) + "/1"
	for prefix, base := range map[string]string{"": "/base", "/ops": "/ops/base"} {
		change := []func(*http.Request){header("Referer", "https://ops.example"+base+path)}
		if prefix != "" {
			change = append(change, header("X-Forwarded-Prefix", prefix))
		}
		a := s.submit("/base"+path+"/skip", "expected_status=dead&reason=kept&confirm=no", change...).want(t, 422, `value="kept"`, `value="no"`, `role="alert"`)
		if !strings.Contains(a.body, `<details class="skipform" open="">`) {
			t.Error("the refused form is hidden")
		}
	}
}

// If the form is no longer on the page, the refusal is at the top and shows the input.
func TestRefusedForm_thatIsGone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.seed("c-1", poison)
	s.work()
	s.submit("/rows/c-1/1/requeue", "expected_status=dead").want(t, 303)
	page := header("Referer", "http://127.0.0.1:8080/campaigns/c-1/events/1?act=1")
	s.submit("/rows/c-1/1/requeue", "expected_status=dead&reason=mended+it", page).
		want(t, 409, `tabindex="-1"><div id="refusal"`, "You typed: <q>mended it</q>", "status is pending, not dead").lacks(t, `data-testid="flash"`)
	for _, elsewhere := range []string{"", "http://127.0.0.1:8080/nothing", "http://127.0.0.1:8080/export/rows", "::", "/api/v1/rows"} {
		s.submit("/rows/c-1/1/requeue", "expected_status=dead", header("Referer", elsewhere)).want(t, 409, `id="refusal"`, "status is pending, not dead")
	}
}

// An error that cannot be shown at a form reaches the page's script in an answer that browsers do
// not log to their console.
func TestRefusedForm_toldToScripts(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.ActRate = 1 })
	s.seed("c-1", "a")
	byScript := header("HX-Request", "true")
	for range 2 {
		s.submit("/campaigns/c-1/pause", "", byScript)
	}
	a := s.submit("/campaigns/c-1/pause", "reason=x", byScript).want(t, 200, `role="alert"`, "Too many actions").lacks(t, "<html")
	if a.Header.Get("Outboxweb-Status") != "429" || a.Header.Get("HX-Retarget") != "this" {
		t.Errorf("it has the header %v", a.Header)
	}
	a = s.get("/campaigns/c-9/events/1", byScript, header("HX-Target", "live")).want(t, 200)
	if a.Header.Get("Outboxweb-Status") != "404" || a.body != `There is no campaign "c-9": nothing has been appended to it.` {
		t.Errorf("a poll is answered with %v %q", a.Header, a.body)
	}
	s.submit("/campaigns/c-1/pause", "reason=x").want(t, 429, "<h1>")
}

// An invalid preview form is shown again.
func TestRefusedForm_thatAsks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.seed("c-1", "a")
	s.get("/runs/new?kind=verify&campaigns=c-1%0D%0Ac-2&rate=fast").want(t, 422, `value="fast"`, `role="alert"`, "c-1\nc-2</textarea>", `value="verify" required="" checked=""`)
	s.get("/export/rows?reverse=tru").want(t, 422, "<h1>")
}

// A refused filter is shown with what was typed, without the list: it would not match the filter.
func TestRefusedForm_thatFiltersAList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.seed("c-1", "a")
	const told = `role="alert"`
	s.get("/events?since=2026-11-22&until=2026-11-20&q=kept&reverse=true&cursor=x").
		want(t, 422, told, "Since must be before until.", `value="kept"`, `value="2026-11-22"`, `value="2026-11-20"`, `aria-invalid="true"`, `name="reverse" value="true"`).
		lacks(t, "event-1", `name="cursor"`)
	s.get("/events?since=soon&campaign=c-1").want(t, 422, told, "write a time", `value="soon"`, `<details class="more" open="">`, `value="c-1"`).lacks(t, "event-1")
	s.get("/audit?until=soon&actor=ana").want(t, 422, told, `value="soon"`, `value="ana"`)
	s.get("/rows?status=rotten&campaign=c-1").want(t, 422, told, `value="c-1"`).lacks(t, "row-c-1-1", "rotten\"")
	s.get("/campaigns?q="+strings.Repeat("x", 501)+"&state=blocked").want(t, 422, told, `name="state" value="blocked"`).lacks(t, "/campaigns/c-1")
	s.get("/runs?kind=x&campaign=c-1").want(t, 422, told, `value="c-1"`)
}
