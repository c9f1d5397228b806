//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// sliceCPU is about how much CPU time a slice of a page uses, in seconds. It is short, so that a
// burst of other work on the machine affects both sides.
const sliceCPU = 0.005

// asked are the addresses whose CPU time a page is measured, after their kind.
// C is a campaign that is blocked by a dead head, SEQ that row.
var asked = []struct {
	kind, prefix string
	paths        []string
}{
	{"page", "", []string{"/", "/rows", "/rows?status=dead", "/campaigns", "/campaigns?sort=lag", "/campaigns/C", "/rows/C/SEQ", "/campaigns/C/events/SEQ",
		"/projections", "/failures", "/runs", "/publishers", "/instances", "/audit", "/about"}},
	{"api", "/api/v1", []string{"/summary", "/rows", "/campaigns", "/campaigns/C", "/rows/C/SEQ", "/campaigns/C/events/SEQ",
		"/failures", "/failures/1", "/runs", "/publishers", "/instances", "/audit", "/projections"}},
}

func pageProbes() []*probe {
	all := []*probe{overviewProbe()}
	for _, group := range asked {
		for _, path := range group.paths {
			all = append(all, pageProbe(group.kind+" "+path, group.prefix+path))
		}
	}
	return all
}

// pageProbe requests a page repeatedly on one connection. The first measurement decides how many
// times, for both sides.
func pageProbe(name, path string) *probe {
	requests := 0
	return newProbe(func(ctx context.Context, s *side) ([]float64, error) {
		ask := func(n int) (float64, error) {
			return s.pages.cost(func() error {
				for range n {
					if _, err := s.pages.ask(ctx, s.names.Replace(path), ""); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if requests == 0 {
			if _, err := ask(10); err != nil {
				return nil, err
			}
			first, err := ask(20)
			if err != nil {
				return nil, err
			}
			requests = max(1, int(sliceCPU*20/first))
		}
		cpu, err := ask(requests)
		return []float64{cpu / float64(requests)}, err
	}, &row{name: name, unit: micros}).times(3, 8)
}

// overviewProbe requests an overview that has to be read from the databases: one is shared for a
// second. It is a small sample and taken often.
func overviewProbe() *probe {
	p := newProbe(func(ctx context.Context, s *side) ([]float64, error) {
		if err := sleep(ctx, time.Until(s.overview.Add(1100*time.Millisecond))); err != nil {
			return nil, err
		}
		cpu, err := s.pages.cost(func() error {
			_, err := s.pages.ask(ctx, "/", "")
			return err
		})
		s.overview = time.Now()
		return []float64{cpu}, err
	}, &row{name: "page / (read)", unit: micros}).times(2, 1)
	p.often = true
	return p
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// preparePages makes a sample journal with 60 campaigns blocked by a dead head, runs and
// publishers, so that lists are as long as pages show them.
func (l *lab) preparePages(ctx context.Context, s *side) error {
	lines, _, err := l.sides[base].run(ctx, nil, "", "sample", "--campaigns", "160", "--events", "12000", "--poison", "60")
	if err != nil {
		return err
	}
	settings := s.settings("pages", "OUTBOXWEB_MAX_ATTEMPTS=1", "OUTBOXWEB_RETRY_BASE=1ms")
	if _, _, err := s.run(ctx, settings, lines, "append", "-"); err != nil {
		return err
	}
	if _, _, err := s.run(ctx, settings, "", "publishers", "list"); err == nil { // an older program has none
		topics := filepath.Join(s.dir, "topics.yaml")
		if err := os.WriteFile(topics, []byte(topicsOf(s.dir)), 0o600); err != nil {
			return err
		}
		settings = append(settings, "OUTBOXWEB_CONFIG="+topics)
	}
	if err := s.on(ctx, settings, os.Interrupt, func(running *server) error { return play(ctx, running) }); err != nil {
		return err
	}
	if s.pages, err = serve(ctx, s.binary, s.settings("pages", "OUTBOXWEB_PUBLISH=false"), "--no-worker"); err != nil {
		return err
	}
	var dead struct{ Items []deadRow }
	if err := s.pages.read(ctx, "/api/v1/rows?status=dead&limit=100", &dead); err != nil {
		return err
	}
	if len(dead.Items) == 0 {
		return errors.New("no row of the sample journal is dead")
	}
	least := slices.MinFunc(dead.Items, func(a, b deadRow) int { return strings.Compare(a.CampaignID, b.CampaignID) })
	s.names = strings.NewReplacer("/C", "/"+least.CampaignID, "/SEQ", fmt.Sprint("/", least.Seq))
	return nil
}

type deadRow struct {
	CampaignID string `json:"campaign_id"`
	Seq        int64  `json:"seq"`
}

// topicsOf is a configuration with ten publishers that get few events.
func topicsOf(dir string) string {
	text := "topics:\n  all:\n    match: {event_types: [campaign.created]}\n    publishers:\n"
	for i := range 10 {
		text += fmt.Sprintf("      file-%d: {url: \"file://%s/published-%d\"}\n", i, dir, i)
	}
	return text
}

// play applies what can be applied and verifies 55 campaigns, each in a run of
// its own.
func play(ctx context.Context, s *server) error {
	if err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		var at struct {
			Counts    struct{ Processing, Failed, Dead int }
			Campaigns struct{ Lagging, Blocked int }
		}
		err := s.read(ctx, "/api/v1/summary", &at)
		return at.Counts.Dead > 0 && at.Counts.Processing+at.Counts.Failed == 0 && at.Campaigns.Lagging == at.Campaigns.Blocked, err
	}); err != nil {
		return fmt.Errorf("apply the sample journal: %w", err)
	}
	var campaigns struct{ Items []deadRow }
	if err := s.read(ctx, "/api/v1/campaigns?limit=55", &campaigns); err != nil {
		return err
	}
	for _, c := range campaigns.Items {
		_, err := s.ask(ctx, "/api/v1/runs", fmt.Sprintf(`{"kind":"verify","campaign_id":%q}`, c.CampaignID))
		if missing(err) {
			return nil // the pages of runs will be missing as well
		}
		if err != nil {
			return err
		}
	}
	return poll(ctx, 50*time.Millisecond, func() (bool, error) {
		var runs struct {
			Items []struct {
				Finished *time.Time `json:"finished_at"`
			}
		}
		err := s.read(ctx, "/api/v1/runs?limit=100", &runs)
		for _, r := range runs.Items {
			if r.Finished == nil {
				return false, err
			}
		}
		return true, err
	})
}

// missing reports whether an address is not there, or a command is not known.
func missing(err error) bool {
	var answer *errStatus
	var exit *exec.ExitError
	return errors.As(err, &answer) && answer.code == http.StatusNotFound || errors.As(err, &exit) && exit.ExitCode() == 2
}

// read asks for JSON.
func (s *server) read(ctx context.Context, path string, into any) error {
	answer, err := s.ask(ctx, path, "")
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}
