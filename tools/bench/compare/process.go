//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience bounds every wait for something that should happen soon.
const patience = time.Minute

// command prepares a process that ends with ctx and with this one, without the user's own settings.
// settings are outboxweb's, given by environment, since an older program ignores unknown ones
// there.
func command(ctx context.Context, settings []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for _, set := range cmd.Environ() {
		if !strings.HasPrefix(set, "OUTBOXWEB_") && !strings.HasPrefix(set, "CGO_ENABLED=") {
			cmd.Env = append(cmd.Env, set)
		}
	}
	cmd.Env = append(append(cmd.Env, "CGO_ENABLED=0"), settings...)
	return cmd
}

// output runs a command to its end and returns what it printed, and the CPU
// time it used. Its error holds what it wrote to stderr.
func output(cmd *exec.Cmd) (string, time.Duration, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", 0, fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, out.String(), errs.String())
	}
	return out.String(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// server is a running outboxweb serve.
type server struct {
	cmd      *exec.Cmd
	url      string
	client   *http.Client
	startCPU float64       // seconds from its start to "listening on"
	start    time.Duration // the same on the clock
}

// serve starts a server and waits until it listens.
func serve(ctx context.Context, binary string, settings []string, flags ...string) (*server, error) {
	var errs bytes.Buffer
	cmd := command(ctx, settings, binary, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: callers}}}
	line, _ := bufio.NewReader(out).ReadString('\n') // its error is on stderr
	s.start = time.Since(began)
	url, listening := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !listening {
		err := cmd.Wait()
		return nil, fmt.Errorf("%s does not start: %w\n%s", binary, err, errs.String())
	}
	s.url = url
	s.startCPU, err = s.cpu()
	return s, err
}

// stop ends the server, and waits for it.
func (s *server) stop(how os.Signal) error {
	s.client.CloseIdleConnections()
	if err := s.cmd.Process.Signal(how); err != nil {
		return err
	}
	var exit *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// cpu is the CPU time that the server has used so far, in seconds. The kernel
// counts it in nanoseconds for each thread; where it does not, in ticks.
func (s *server) cpu() (float64, error) {
	process := fmt.Sprintf("/proc/%d/", s.cmd.Process.Pid)
	threads, err := filepath.Glob(process + "task/*/schedstat")
	if err != nil {
		return 0, err
	}
	var total float64
	for _, path := range threads {
		nanos, err := field(path, 0)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has just ended
		}
		if err != nil {
			return 0, err
		}
		total += nanos / 1e9
	}
	if len(threads) > 0 {
		return total, nil
	}
	user, err := field(process+"stat", 13)
	if err != nil {
		return 0, err
	}
	system, err := field(process+"stat", 14)
	return (user + system) / 100, err // USER_HZ is 100 wherever Go runs on Linux
}

// rss is the memory of the server that is resident, in bytes.
func (s *server) rss() (float64, error) {
	pages, err := field(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid), 1)
	return pages * float64(os.Getpagesize()), err
}

// field is a number in a file of numbers.
func field(path string, n int) (float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if n >= len(fields) {
		return 0, fmt.Errorf("%s has only %d fields: %q", path, len(fields), text)
	}
	return strconv.ParseFloat(fields[n], 64)
}

// settledRSS waits until the memory is stable, for two seconds at most.
func (s *server) settledRSS(ctx context.Context) (float64, error) {
	var last, now float64
	same := 0
	until := time.Now().Add(2 * time.Second)
	err := poll(ctx, 50*time.Millisecond, func() (done bool, err error) {
		last = now
		if now, err = s.rss(); now == last {
			same++
		} else {
			same = 0
		}
		return same >= 6 || time.Now().After(until), err
	})
	return now, err
}

// errStatus is an answer other than 200 and 201.
type errStatus struct {
	address string
	code    int
	body    []byte
}

func (e *errStatus) Error() string {
	return fmt.Sprintf("%s answers %d: %.300s", e.address, e.code, e.body)
}

// ask makes a request: a POST when there is a body. It returns an *errStatus
// for an answer that is no success.
func (s *server) ask(ctx context.Context, path, body string) ([]byte, error) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = &errStatus{path, resp.StatusCode, answer}
	}
	return answer, err
}

// cost is the CPU time, in seconds, that the server uses for fn's requests.
func (s *server) cost(fn func() error) (float64, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	if err := fn(); err != nil {
		return 0, err
	}
	after, err := s.cpu()
	return after - before, err
}

// poll calls done until it reports true.
func poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it is not done within %s", patience))
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
