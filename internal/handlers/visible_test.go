package handlers

import (
	"net/url"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/web/templates"
)

// A name with direction-changing characters, from before they were refused, is shown with escapes,
// on whole pages and in the parts that refresh; its form still sends the name unchanged.
func TestPages_showNamesThatTurnOrHide(t *testing.T) {
	t.Parallel()
	const name = "\u202egnp.exe\u200b"
	s := newSite(t)
	s.seed("before", "a", poison, "b")
	s.seed("שלום", "a")
	s.work()
	for _, table := range []string{"events", "projection_apply_outbox", "campaigns", "attempts"} {
		s.tamper("update " + table + " set campaign_id = '" + name + "' where campaign_id = 'before'")
	}
	s.submit("/campaigns/"+url.PathEscape("שלום")+"/pause", "reason="+url.QueryEscape(name)).want(t, 303)
	for _, page := range []string{"/", "/rows", "/campaigns", "/campaigns/" + url.PathEscape(name), "/campaigns/" + url.PathEscape(name) + "/events/2"} {
		for _, a := range []answer{s.get(page), s.get(page, header("HX-Target", templates.LiveTarget))} {
			a.want(t, 200, `\u202egnp.exe\u200b`)
			for _, sent := range []string{`data-testid="`, `value="`, `id="`, `data-key="`} {
				a.body = strings.ReplaceAll(a.body, sent+"campaign-"+name, "")
				a.body = strings.ReplaceAll(a.body, sent+"row-"+name, "")
				a.body = strings.ReplaceAll(a.body, sent+name, "")
			}
			if i := strings.Index(a.body, "\u202e"); i >= 0 {
				t.Errorf("%s turns at …%+q…", page, a.body[max(0, i-80):min(len(a.body), i+20)])
			}
		}
	}
	s.get("/audit").want(t, 200, "Paused campaign <bdi>שלום</bdi>.", `\u202egnp.exe\u200b`)
	s.get("/operations/new?campaign="+url.QueryEscape(name)).want(t, 200, `value="`+name+`"`)
}
