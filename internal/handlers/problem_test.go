package handlers

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// byForm marks a request as a form's, sent by the page's script.
func byForm(r *http.Request) {
	r.Header.Set("HX-Request", "true")
	r.Header.Set("Outboxweb-Form", "1")
}

// A refused form is answered with a page that repeats what was typed; scripts get the sentence for
// the form, and the fields at fault, without a line in the browser's console.
func TestRefusedForm_keepsWhatWasTyped(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a", poison, "b")
	s.withPublisher(1)
	s.work()
	tooLong := strings.Repeat("x", 501)
	for _, form := range []struct{ path, fields, wrong, keeps string }{
		{"/rows/c-1/2/requeue", "expected_status=dead&reason=" + tooLong, "reason", tooLong},
		{"/rows/c-1/2/skip", "expected_status=dead&confirm=skip&reason=" + url.QueryEscape(`it's "late" & <soon>`), "confirm", "it&#39;s &#34;late&#34; &amp; &lt;soon&gt;"},
		{"/projections/campaigns/pause", "reason=" + tooLong, "reason", tooLong},
		{"/runs", "kind=verify&all=1&rate=fast&reason=one%0D%0Atwo", "rate", "one\r\ntwo"},
		{"/failures/groups/note", "fingerprint=f&note=" + strings.Repeat("n", 2001), "note", strings.Repeat("n", 2001)},
	} {
		a := s.submit(form.path, form.fields).want(t, 422, "<h1>Check your input", `<dd class="wrap">`+form.keeps+"</dd>").lacks(t, "<dt>expected")
		if a.Header.Get("HX-Retarget") != "" {
			t.Errorf("%s without scripts: %v", form.path, a.Header)
		}
		a = s.submit(form.path, form.fields, byForm).want(t, 200, `role="alert"`, `data-fields="`+form.wrong+`"`).lacks(t, "<html", form.keeps)
		h := a.Header
		if h.Get("Outboxweb-Status") != "422" || h.Get("HX-Push-Url") != "false" || h.Get("HX-Retarget") != "this" || h.Get("HX-Reswap") != "afterbegin show:none" {
			t.Errorf("%s: scripts are told %v", form.path, h)
		}
	}
	s.get("/api/v1/audit?outcome=done").want(t, 200, `"items":[]`)
}

// A refused filter or preview is told with what was typed, and with a way to its page without it.
func TestRefusedForm_thatAsks(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.BasePath = "/base"
		c.Trusts = func(*http.Request) bool { return true }
	})
	s.seed("c-1", "a")
	prefix := header("X-Forwarded-Prefix", "/ops")
	const events = "/base/events?since=2026-11-22&until=2026-11-20&q=kept&cursor=x"
	s.get(events, prefix).want(t, 422, "Since must be before until.", ">kept</dd>", ">2026-11-22</dd>", `href="/ops/base/events" data-testid="whole"`).lacks(t, "event-1", "<dt>cursor")
	s.get(events, byForm).want(t, 200, `data-fields="since"`).lacks(t, "<html")
	s.get("/base/runs/new?kind=verify&campaigns=c-1%0D%0Ac-2&rate=fast").want(t, 422, ">fast</dd>", "c-1\r\nc-2</dd>")
	s.get("/base/rows?statsu=dead").want(t, 422, "is not a query parameter", `data-testid="whole"`)
}

// An error that is not of a form reaches the page's script in an answer that browsers do not log to
// their console: a page, or the sentence for a live part.
func TestFail_toldToScripts(t *testing.T) {
	s := ownSite(t)
	byScript := header("HX-Request", "true")
	if a := s.get("/campaigns/c-9", byScript).want(t, 200, "<html"); a.Header.Get("Outboxweb-Status") != "404" || a.Header.Get("HX-Retarget") != "" {
		t.Errorf("a link is answered with %v", a.Header)
	}
	a := s.get("/campaigns/c-9/events/1", byScript, header("HX-Target", "live")).want(t, 200)
	if a.Header.Get("Outboxweb-Status") != "404" || a.body != `There is no campaign "c-9": nothing has been appended to it.` {
		t.Errorf("a poll is answered with %v %q", a.Header, a.body)
	}
}
