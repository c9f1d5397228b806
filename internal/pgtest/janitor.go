package pgtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// janitorScript runs each line it reads and answers with its exit status; lines may call its
// functions. When its input ends, because it was closed or the process at the other end is
// gone, it ends its program by the signal $1 and removes the directory $2. The program is its
// child, so that no zombie remains where process 1 does not reap. The traps keep it alive when
// its answers are no longer read, or when all processes get a signal.
const janitorScript = `
# halt SIGNAL ends the program.
halt() {
	kill -s "$1" "$pid" && { wait "$pid"; pid=; }
}
# launch SECONDS READY PROGRAM starts the program, and waits until the line READY succeeds.
launch() {
	tries=$(($1 * 100)) ready=$2 limit=$1
	shift 2
	"$@" &
	pid=$!
	until eval "$ready"; do
		sleep 0.01
		kill -s 0 "$pid" || return
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || { echo "not ready after $limit s"; return 1; }
	done
}
trap : HUP INT TERM PIPE
pid=
while read -r line; do
	eval "$line" </dev/null >>log 2>&1
	echo $?
done
[ -z "$pid" ] || halt "$1" >>log 2>&1
cd / && rm -rf "$2"
`

// A janitor is a shell that runs a program in its own directory and cleans up after it even if
// this process is killed. Its methods may be called concurrently.
type janitor struct {
	dir   string // working directory of the commands, which write to the file log in it
	bin   string // of the programs
	cmd   *exec.Cmd
	stdin io.Closer

	mu      sync.Mutex
	command io.Writer
	status  *bufio.Reader
	ended   bool
}

// newJanitor starts a janitor in a new directory. Its commands find programs in bin before the
// system's; signal ends its program when the janitor ends.
func newJanitor(bin, signal string) (*janitor, error) {
	account, err := unprivileged()
	if err != nil {
		return nil, err
	}
	// A socket's path may have at most 107 bytes, and the account must be able to enter every
	// directory of it, so neither $TMPDIR nor testing.TB's directory will do.
	dir, err := os.MkdirTemp(roomyPlace(), "pg")
	if err != nil {
		return nil, err
	}
	j := &janitor{dir: dir, bin: bin, cmd: exec.Command("/bin/sh", "-c", janitorScript, "sh", signal, dir)}
	if err := j.start(bin, account); err != nil {
		return nil, errors.Join(fmt.Errorf("start a shell in %s: %w", dir, err), os.RemoveAll(dir))
	}
	return j, nil
}

// roomyPlace is the directory for a server's data: in memory if there is enough, since creating
// and dropping a database touches hundreds of small files, and in /tmp otherwise.
func roomyPlace() string {
	const memory, tmpfs, plenty = "/dev/shm", 0x01021994, 4 << 30
	var s syscall.Statfs_t
	if err := syscall.Statfs(memory, &s); err == nil && s.Type == tmpfs && uint64(s.Bavail)*uint64(s.Bsize) > plenty {
		return memory
	}
	return "/tmp"
}

func (j *janitor) start(bin string, account *syscall.Credential) error {
	if account != nil {
		if err := os.Chown(j.dir, int(account.Uid), int(account.Gid)); err != nil {
			return err
		}
	}
	stdin, err := j.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := j.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	j.stdin, j.command, j.status = stdin, stdin, bufio.NewReader(stdout)
	j.cmd.Dir = j.dir
	j.cmd.Env = []string{"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin", "LC_ALL=C"}
	// A process group of its own survives the terminal's interrupt to ours.
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: account, Setpgid: true}
	return j.cmd.Start()
}

// run runs one shell line and waits for it. An error contains the end of the log.
func (j *janitor) run(line string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return fmt.Errorf("%s: the server was stopped, or is another process's", line)
	}
	if _, err := io.WriteString(j.command, line+"\n"); err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	status, err := j.status.ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	if status != "0\n" {
		return fmt.Errorf("%s: exit status %s: %s", line, strings.TrimSpace(status), j.logTail())
	}
	return nil
}

// end ends the program, removes the directory and waits for both. Further calls do nothing.
func (j *janitor) end() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return nil
	}
	j.ended = true
	return errors.Join(j.stdin.Close(), j.cmd.Wait())
}

// logTail returns the last lines that the commands logged.
func (j *janitor) logTail() string {
	log, err := os.ReadFile(filepath.Join(j.dir, "log"))
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-10):], []byte("\n")))
}

// unprivileged returns the account to run servers under: nil for this process's own, or the
// package's user "postgres" where this process is root, which PostgreSQL and pgbouncer refuse.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root and needs its user, which its package makes: apt-get install postgresql: %w", err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// serverPrograms returns the directory of PostgreSQL's server programs: that of
// the initdb on PATH, or Debian's of the highest version.
func serverPrograms() (string, error) {
	var dirs []string
	if initdb, err := exec.LookPath("initdb"); err == nil {
		if initdb, err = filepath.EvalSymlinks(initdb); err == nil {
			dirs = append(dirs, filepath.Dir(initdb))
		}
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well-formed
	slices.SortFunc(debian, func(a, b string) int { return majorVersion(b) - majorVersion(a) })
	for _, dir := range append(dirs, debian...) {
		if hasPrograms(dir, "initdb", "postgres") {
			return dir, nil
		}
	}
	return "", errors.New("PostgreSQL's server is needed for these tests: apt-get install postgresql")
}

// majorVersion returns 15 for /usr/lib/postgresql/15/bin, and 0 for a path without a version.
func majorVersion(dir string) int {
	version, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return version
}

func hasPrograms(dir string, names ...string) bool {
	for _, name := range names {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}
