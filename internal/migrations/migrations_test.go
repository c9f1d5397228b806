package migrations_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/migrations"
)

// The step of alerts adds tables of its own, so that instances of the version before, which know
// none of them, run on beside it.
func TestAlerts_onlyAddTables(t *testing.T) {
	t.Parallel()
	adds := regexp.MustCompile(`^(create table alert_\w+ \(|create index \w+ on alert_\w+ |insert into alert_\w+ )`)
	for _, dialect := range []string{"sqlite", "postgres"} {
		text, err := migrations.Files.ReadFile(dialect + "/journal/00020_alerts.sql")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for statement := range strings.SplitSeq(regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(string(text), ""), ";") {
			if statement = strings.TrimSpace(statement); statement == "" {
				continue
			}
			if n++; !adds.MatchString(statement) {
				t.Errorf("%s: not only its own tables are changed by\n%s", dialect, statement)
			}
		}
		if n < 5 {
			t.Errorf("%s: %d statements", dialect, n)
		}
	}
}
