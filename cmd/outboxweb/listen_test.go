package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/handlers"
	"github.com/outboxweb/outboxweb/internal/must"
)

// shortDir is a directory whose path is short enough for a Unix socket in it.
func shortDir(t testing.TB) string {
	dir := must.Get(os.MkdirTemp("", "ow")).Or(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func through(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}

func wantAnswer(t *testing.T, client *http.Client, url string) *http.Response {
	response := must.Get(client.Get(url)).Or(t)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must.Hold(t, err == nil && response.StatusCode == http.StatusOK, "GET %s: %s, %v\n%s", url, response.Status, err, body)
	return response
}

func mode(t *testing.T, path string) os.FileMode { return must.Get(os.Lstat(path)).Or(t).Mode().Perm() }

func TestListen_onAUnixSocketThatOthersCannotUse(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(shortDir(t), "http.sock")
	listening := []string{"--auth", "none", "--listen", "unix:" + socket}
	s := serve(t, listening...)
	must.Equal(t, s.url, "unix:"+socket, "it prints")
	must.Equal(t, mode(t, socket), socketMode, "the socket has the mode")
	wantAnswer(t, through(socket), "http://localhost/")
	out, errs, code := runIn(t, t.TempDir(), append([]string{"serve"}, listening...)...)
	want := "outboxweb: --listen: cannot listen on unix:" + socket + ": another process is listening there; stop it, or listen elsewhere\n"
	must.Hold(t, code == exitFailed && errs == want && out == "", "a second server: exit %d, stdout %q, stderr %q", code, out, errs)
	wantAnswer(t, through(socket), "http://localhost/healthz")
	s.stop()
	_, err := os.Lstat(socket)
	must.Hold(t, os.IsNotExist(err), "the socket is still there: %v", err)

	killed := serve(t, listening...)
	killed.signal(syscall.SIGKILL)
	killed.wait()
	must.Get(os.Lstat(socket)).Or(t)
	before := serve(t, listening...) // at the socket of the dead one
	wantAnswer(t, through(socket), "http://localhost/")
	must.OK(t, os.Remove(socket))
	serve(t, listening...)
	before.stop() // and leaves its successor's
	wantAnswer(t, through(socket), "http://localhost/healthz")
}

// Of several processes that start at once at a stale socket, exactly one gets the address, and is
// reachable there. They run in a separate process, since creating a socket changes the umask.
func TestListen_racersDoNotTakeEachOthersSocket(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("racesockets", filepath.Join(shortDir(t), "http.sock")).CombinedOutput()
	must.Hold(t, err == nil, "%v: %s", err, out)
}

func raceSockets() {
	for range 200 {
		if err := raceSocket(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailed)
		}
	}
}

func raceSocket(path string) error {
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	const racers = 4
	got := make(chan net.Listener, racers)
	for range racers {
		go func() {
			l, _ := listenUnix(context.Background(), path) // the others are refused
			got <- l
		}()
	}
	var winners []net.Listener
	for range racers {
		if l := <-got; l != nil {
			winners = append(winners, l)
		}
	}
	if len(winners) != 1 {
		return fmt.Errorf("%d listen at one place", len(winners))
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	return errors.Join(conn.Close(), winners[0].Close())
}

// activates runs serve --listen systemd as systemd would, with these sockets passed on, which must say that it listens
// there, or refuse them so.
func activates(t *testing.T, says string, sockets []*os.File, flags ...string) {
	program := must.Get(exec.LookPath("outboxweb")).Or(t)
	script := fmt.Sprintf(`LISTEN_PID=$$ LISTEN_FDS=%d exec "$0" serve --listen systemd "$@"`, len(sockets))
	cmd := exec.Command("sh", append([]string{"-c", script, program}, flags...)...)
	cmd.Dir, cmd.ExtraFiles = t.TempDir(), sockets
	s, said := launch(t, cmd)
	if said == "" {
		err := s.wait()
		must.Hold(t, err != nil && cmd.ProcessState.ExitCode() == exitUsage, "it ended with %v", err)
		said = s.stderr.String()
	}
	must.Need(t, strings.Contains(said, says), "%v: it says %q, want %q", flags, said, says)
}

func fileOf(t *testing.T, of interface{ File() (*os.File, error) }) *os.File {
	f := must.Get(of.File()).Or(t)
	t.Cleanup(func() { f.Close() })
	return f
}

func tcpSocket(t *testing.T, host string) *net.TCPListener {
	l := must.Get(net.Listen("tcp", host+":0")).Or(t)
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

func unixSocket(t *testing.T) (l *net.UnixListener, path string) {
	path = filepath.Join(shortDir(t), "http.sock")
	l = must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})).Or(t)
	t.Cleanup(func() { l.Close() })
	return l, path
}

// Without a mode in its unit, systemd creates a socket open to everyone.
func TestListen_leavesTheUnixSocketOfSystemdInPlaceAndRefusesOneThatIsOpenToAll(t *testing.T) {
	t.Parallel()
	l, socket := unixSocket(t)
	passed := []*os.File{fileOf(t, l)}
	must.OK(t, os.Chmod(socket, 0o660))
	activates(t, "everyone who reaches the proxy would be an admin; set --auth", passed)
	activates(t, "listening on unix:"+socket, passed, "--auth", "none")
	wantAnswer(t, through(socket), "http://localhost/")
	must.Get(os.Lstat(socket)).Or(t)
	believing := []string{"--auth", "proxy-header", "--auth-preset", "authelia", "--viewer", "*", "--trusted-proxy", "unix"}
	activates(t, "listening on ", passed, believing...)
	must.OK(t, os.Chmod(socket, 0o666))
	activates(t, "SocketMode=0660", passed)
	activates(t, "SocketMode=0660", passed, believing...)
	activates(t, "listening on ", passed, "--auth", "token") // tokens alone count
}

func TestListen_takesOneStreamSocketOfSystemd(t *testing.T) {
	t.Parallel()
	one, two := tcpSocket(t, "127.0.0.1"), tcpSocket(t, "127.0.0.1")
	udp := must.Get(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})).Or(t)
	defer udp.Close()
	datagrams := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(shortDir(t), "dgram"), Net: "unixgram"})).Or(t)
	defer datagrams.Close()
	connected := must.Get(net.Dial("tcp", one.Addr().String())).Or(t)
	defer connected.Close()
	regular := must.Get(os.Create(filepath.Join(t.TempDir(), "file"))).Or(t)
	defer regular.Close()
	for _, f := range []*os.File{fileOf(t, udp), fileOf(t, datagrams), fileOf(t, connected.(*net.TCPConn)), regular} {
		must.Hold(t, !isListening(f), "%s listens", f.Name())
	}
	world := tcpSocket(t, "0.0.0.0")
	for want, files := range map[string][]*os.File{
		"systemd passed 2 sockets":                           {fileOf(t, one), fileOf(t, two)},
		"something other than a listening stream socket":     {fileOf(t, udp)},
		world.Addr().String() + " is not a loopback address": {fileOf(t, world)},
		"listening on http://" + one.Addr().String():         {fileOf(t, one)},
	} {
		activates(t, want, files)
	}
	wantAnswer(t, http.DefaultClient, "http://"+one.Addr().String()+"/")
	activates(t, "listening on ", []*os.File{fileOf(t, world)}, "--read-only", "--insecure-no-auth")
}

// Sockets passed on to a parent are not for its child.
func TestListen_ignoresASocketForAnotherProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("outboxweb", "serve", "--listen", "systemd")
	cmd.Dir, cmd.ExtraFiles = t.TempDir(), []*os.File{fileOf(t, tcpSocket(t, "127.0.0.1"))}
	cmd.Env = append(os.Environ(), "LISTEN_PID="+strconv.Itoa(os.Getpid()), "LISTEN_FDS=1")
	out, err := cmd.CombinedOutput()
	must.Hold(t, cmd.ProcessState.ExitCode() == exitUsage && strings.Contains(string(out), "passed no socket"), "%v: %s", err, out)
}

// A client may send its next request on a connection that a server closes as it ends, and could not
// tell whether it was carried out.
func TestRefuse_keepsNoConnection(t *testing.T) {
	t.Parallel()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	defer listener.Close()
	defer refuse(listener, nil)()
	a := must.Get(http.Get("http://" + listener.Addr().String())).Or(t)
	defer a.Body.Close()
	must.Hold(t, a.StatusCode == http.StatusServiceUnavailable && a.Close, "%d, closed %v; want a refusal that ends its connection", a.StatusCode, a.Close)
}

func TestServer_cutsSlowClients(t *testing.T) {
	t.Parallel()
	s := handlers.NewHTTPServer(nil, handlers.Patience{}, slog.New(slog.DiscardHandler))
	must.Hold(t, min(s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout) > 0, "it waits for ever: %+v", s)
}

// pairFiles are a certificate and its key in a directory.
type pairFiles struct {
	t         *testing.T
	cert, key string
}

func newPairFiles(t *testing.T) pairFiles {
	dir := t.TempDir()
	return pairFiles{t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

// put replaces a file by rename, as certificate renewal tools do.
func (p pairFiles) put(name string, text []byte) {
	must.OK(p.t, os.WriteFile(name+".new", text, 0o600))
	must.OK(p.t, os.Rename(name+".new", name))
}

func (p pairFiles) write(serial int64) {
	cert, key := newKeyPair(p.t, serial)
	p.put(p.cert, cert)
	p.put(p.key, key)
}

func newKeyPair(t *testing.T, serial int64) (cert, key []byte) {
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "outboxweb test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)).Or(t)
	secret := must.Get(x509.MarshalPKCS8PrivateKey(private)).Or(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// trusting is a client that trusts the certificate in the file, and opens a connection for each
// request.
func (p pairFiles) trusting() *http.Client {
	text := must.Get(os.ReadFile(p.cert)).Or(p.t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
}

func TestTLS_speaksHTTP2AndTakesAnotherCertificateWithoutRestart(t *testing.T) {
	t.Parallel()
	pair := newPairFiles(t)
	pair.write(1)
	s := serve(t, "--tls-cert", pair.cert, "--tls-key", pair.key)
	must.Need(t, strings.HasPrefix(s.url, "https://127.0.0.1:"), "it prints %q", s.url)
	response := wantAnswer(t, pair.trusting(), s.url+"/")
	must.Equal(t, response.ProtoMajor, 2, "it speaks")
	must.Equal(t, response.Header.Get("Strict-Transport-Security"), "max-age=31536000", "Strict-Transport-Security")
	old := pair.trusting()
	old.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS11
	_, err := old.Get(s.url + "/")
	must.Hold(t, err != nil, "it speaks TLS 1.1")
	plain := serve(t)
	got := wantAnswer(t, http.DefaultClient, plain.url+"/").Header.Values("Strict-Transport-Security")
	must.Hold(t, got == nil, "without TLS, Strict-Transport-Security: %q", got)
	pair.write(2)
	client := pair.trusting()
	must.Eventually(t, "the new certificate is in use", func() bool {
		response, err := client.Get(s.url + "/healthz")
		if err == nil {
			response.Body.Close()
		}
		return err == nil
	})
}

func TestCertificate_thatIsNotSoundLeavesTheOneBefore(t *testing.T) {
	t.Parallel()
	pair := newPairFiles(t)
	pair.write(1)
	var log bytes.Buffer
	c := must.Get(readCertificate(pair.cert, pair.key, slog.New(slog.NewTextHandler(&log, nil)))).Or(t)
	clock := time.Now()
	c.now = func() time.Time { return clock }
	serial := func() int64 { return c.current().Leaf.SerialNumber.Int64() }
	look := func() int64 {
		clock = clock.Add(certificateLook)
		return serial()
	}
	must.Equal(t, look(), 1, "the serial")
	cert, key := newKeyPair(t, 2)
	pair.put(pair.cert, cert) // the key has yet to come
	for range 3 {
		must.Equal(t, look(), 1, "the serial, while key and certificate do not fit")
	}
	must.Equal(t, strings.Count(log.String(), "the previous one stays in use"), 1, "how often it is logged")
	pair.put(pair.key, key)
	must.Equal(t, serial(), 1, "the files were looked at again at once")
	must.Equal(t, look(), 2, "the serial, once key and certificate fit")
	must.OK(t, os.Remove(pair.key))
	for range 3 {
		must.Equal(t, look(), 2, "the serial, without a key")
	}
	must.Hold(t, strings.Count(log.String(), "the previous one stays in use") == 2 && strings.Count(log.String(), pair.key) == 2, "it is logged more or less than twice: %s", &log)
}

func TestServe_refusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	pair, other, unused := newPairFiles(t), newPairFiles(t), shortDir(t)
	pair.write(1)
	other.write(2)
	taken := tcpSocket(t, "127.0.0.1").Addr().String()
	precious := filepath.Join(unused, "precious")
	must.OK(t, os.WriteFile(precious, []byte("text"), 0o600))
	missing, long := filepath.Join(unused, "missing.pem"), filepath.Join(unused, strings.Repeat("x", 120))
	for _, c := range []struct {
		want  string
		code  int
		flags []string
	}{
		{"--tls-cert and --tls-key go together", exitUsage, []string{"--tls-cert", pair.cert}},
		{"--tls-cert and --tls-key go together", exitUsage, []string{"--tls-key", pair.key}},
		{"--tls-cert: cannot read " + missing + ": no such file or directory", exitUsage, []string{"--tls-cert", missing, "--tls-key", pair.key}},
		{"--tls-key: cannot read " + missing + ": no such file or directory", exitUsage, []string{"--tls-cert", pair.cert, "--tls-key", missing}},
		{"--tls-cert " + pair.cert + " and --tls-key " + other.key + " are not a certificate and its key", exitUsage, []string{"--tls-cert", pair.cert, "--tls-key", other.key}},
		{"--tls-cert: a Unix socket does not use TLS", exitUsage, []string{"--tls-cert", pair.cert, "--tls-key", pair.key, "--listen", "unix:" + filepath.Join(unused, "s")}},
		{`--redact-value: "(" is not a regular expression`, exitUsage, []string{"--redact-value=("}},
		{`--redact-value: "a*" matches the empty string`, exitUsage, []string{"--redact-value=a*"}},
		{`--redact-key: "--" is not a key name`, exitUsage, []string{"--redact-key=--"}},
		{"--listen: cannot listen on " + taken + ": address already in use", exitFailed, []string{"--listen", taken}},
		{"a file that is not a socket", exitFailed, []string{"--auth", "none", "--listen", "unix:" + precious}},
		{"no such file or directory", exitFailed, []string{"--auth", "none", "--listen", "unix:" + filepath.Join(unused, "no", "http.sock")}},
		{"bytes long, and the system's limit is 107", exitFailed, []string{"--auth", "none", "--listen", "unix:" + long}},
	} {
		dir := t.TempDir()
		out, errs, code := here(t.Context(), slices.Concat([]string{"serve", "--listen", "127.0.0.1:0", "--journal-db", "sqlite:" + dir + "/j.db", "--projections-db", "sqlite:" + dir + "/p.db"}, c.flags)...)
		must.Hold(t, code == c.code && out == "" && strings.Contains(errs, c.want) && strings.Count(errs, "\n") == 1, "%v: exit %d, %q, %q", c.flags, code, out, errs)
		left, _ := filepath.Glob(filepath.Join(dir, "*"))
		must.Hold(t, left == nil, "left behind: %v", left)
	}
	must.Equal(t, string(must.Get(os.ReadFile(precious)).Or(t)), "text", "the file holds")
}
