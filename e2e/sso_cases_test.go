package e2e

import (
	"net/http"
	"testing"
)

func TestSSO(t *testing.T) {
	fullOnly(t, "TestProxy_inABrowser has a proxy without a login")
	t.Parallel()
	for _, p := range ssoProxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := startSSO(t, p)
			appendTo(t, s.scripts, outside, "poisoned", seats("ana", "ana", "cem"))
			awaitCounts(t, s.scripts, outside, 1, 0, 1)

			b := s.window()
			const deep = outside + "/rows?status=dead&campaign=poisoned&limit=100"
			b.visit(deep)
			b.signInAs("ana")
			if at := value[string](b, "location.pathname + location.search"); at != deep {
				t.Errorf("the login led to %s", at)
			}
			_ = http.StatusOK
		})
	}
}
