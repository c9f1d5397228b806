package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/hosts"
)

// Listening holds serve's flags for the address to listen on and the limits on requests.
type Listening struct {
	Listen  string  `default:"127.0.0.1:8080" placeholder:"PLACE" help:"Listen address: HOST:PORT (port 0 picks a free one), unix:PATH, or systemd for socket activation."`
	TLSCert string  `name:"tls-cert" placeholder:"FILE" help:"TLS certificate and chain, in PEM. Reloaded when the file changes."`
	TLSKey  string  `name:"tls-key" placeholder:"FILE" help:"Private key of --tls-cert, in PEM."`
	ActRate float64 `default:"50" placeholder:"N" help:"Actions per second allowed per identity, with bursts of twice as many; 0 for no limit."`
}

// originFlags configure the origins at which browsers reach the pages, and which may frame them.
type originFlags struct {
	PublicOrigin   string   `placeholder:"ORIGIN" help:"The origin at which browsers reach the dashboard, such as https://ops.example. Its pages may make changes, its host is allowed, and curl commands use it."`
	FrameAncestors []string `placeholder:"ORIGIN" help:"An origin that may embed the dashboard in a frame: scheme://host[:port], or 'self' in single quotes. Repeatable; none by default."`
}

// check validates the origins and normalizes them as browsers do.
func (f *originFlags) check() error {
	if f.PublicOrigin != "" {
		at, err := hosts.Origin(f.PublicOrigin)
		if err != nil {
			return usagef("--public-origin: %v", err)
		}
		f.PublicOrigin = at
	}
	var err error
	if f.FrameAncestors, err = hosts.FrameAncestors(f.FrameAncestors); err != nil {
		return usagef("--frame-ancestors: %v", err)
	}
	return nil
}

const (
	unixPrefix = "unix:"
	systemd    = "systemd"
)

// mostActRate leaves room for twice the rate in an int.
const mostActRate = 1e6

// checkListening validates the flags of listening.
func (c *serveCmd) checkListening() error {
	switch {
	case c.InsecureNoAuth && c.authenticates():
		return usagef("--insecure-no-auth contradicts --auth %s", c.Kind)
	case c.InsecureNoAuth && !c.ReadOnly:
		return usagef("--insecure-no-auth requires --read-only, because actions could not be attributed to anyone")
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return usagef("--tls-cert and --tls-key go together; one of them is missing")
	case math.IsNaN(c.ActRate) || c.ActRate < 0 || c.ActRate > mostActRate:
		return usagef("--act-rate must lie between 0 and %d", int(mostActRate))
	case c.Listen == systemd:
		return nil // the socket passed on by systemd is checked once it is known
	}
	path, unix := strings.CutPrefix(c.Listen, unixPrefix)
	switch {
	case unix && path == "":
		return usagef("--listen: %q names no path, such as unix:/run/outboxweb/http.sock", c.Listen)
	case unix:
		return c.checkSocket(path)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return usagef("--listen: %q is not HOST:PORT, such as 127.0.0.1:8080, nor unix:PATH, nor systemd", c.Listen)
	}
	return c.checkAddress(c.Listen)
}

// checkPlace is checkListening for the address actually listened on, since names and systemd may lead
// elsewhere than the flag says.
func (c *serveCmd) checkPlace(addr net.Addr) error {
	if addr.Network() == "unix" {
		return c.checkSocket(addr.String())
	}
	return c.checkAddress(addr.String())
}

// checkAddress refuses an address that unauthenticated clients could reach.
func (c *serveCmd) checkAddress(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err == nil && (auth.IsLoopback(host) || c.InsecureNoAuth || c.authenticates()) {
		return nil
	}
	return usagef("--listen: %s is not a loopback address, and users are not authenticated; set --auth, listen on 127.0.0.1, or use --read-only with --insecure-no-auth", addr)
}

func (c *serveCmd) checkSocket(path string) error {
	switch {
	case path == "" || path[0] == '@' || path[0] == 0:
		return usagef("--listen: a socket without a path has no file permissions and is open to every user of this machine; give it a path, such as unix:/run/outboxweb/http.sock")
	case c.Listen == systemd && c.believes() && openToOthers(path):
		return usagef("--listen: every user of this machine may connect to the systemd socket %s, and its clients are trusted; set SocketMode=0660 in the socket unit, with the proxy's group as SocketGroup=", path)
	case c.TLSCert != "":
		return usagef("--tls-cert: a Unix socket does not use TLS; remove --tls-cert and --tls-key, or listen on HOST:PORT")
	case c.kind() == auth.KindLocal:
		return usagef("--listen: a Unix socket is for a proxy, and users are not authenticated, so everyone who reaches the proxy would be an admin; set --auth jwt, proxy-header or token, or --auth none if only admins can reach the socket")
	}
	return nil
}

// believes reports whether access to the Unix socket is enough to act, or to assert who acts.
func (c *serveCmd) believes() bool {
	return !c.authenticates() && !c.InsecureNoAuth || slices.Contains(c.TrustedProxy, "unix")
}

// openToOthers reports whether a socket's file lets users connect who are neither its owner nor in
// its group. It is false for a file that is not visible here, as in a service's own mount
// namespace.
func openToOthers(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o002 != 0
}

// checkHosts validates --host. Any host name together with --auth none would let every web page act
// here through its visitor's browser.
func (c *serveCmd) checkHosts() error {
	for _, name := range c.Host {
		if err := hosts.CheckHost(name); err != nil {
			return asUsage("--host", err)
		}
		if name == hosts.Any && !c.authenticates() && !c.ReadOnly {
			return usagef("--host: * without authentication exposes this server to DNS rebinding: any web page could act here; name the hosts, or use --auth or --read-only")
		}
	}
	return nil
}

// hosts returns the host names that browsers may use, including the listening address if it is a
// specific one.
func (c *serveCmd) hosts(addr net.Addr) []string {
	names := c.Host
	for _, text := range []string{c.Listen, addr.String()} {
		host, _, err := net.SplitHostPort(text)
		if ip := net.ParseIP(host); err == nil && host != "" && (ip == nil || !ip.IsUnspecified()) {
			names = append(names[:len(names):len(names)], host)
		}
	}
	return names
}

// listen opens the address of --listen once checkPlace permits it. The caller closes it.
func (c *serveCmd) listen(ctx context.Context) (net.Listener, error) {
	listener, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.checkPlace(listener.Addr()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

func (c *serveCmd) open(ctx context.Context) (net.Listener, error) {
	if c.Listen == systemd {
		return passedOn()
	}
	if path, unix := strings.CutPrefix(c.Listen, unixPrefix); unix {
		return listenUnix(ctx, path)
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: cannot listen on %s: %w", c.Listen, event.Cause(err))
	}
	return listener, nil
}

// address returns the listening address as users and clients write it.
func (c *serveCmd) address(addr net.Addr) string {
	switch {
	case addr.Network() == "unix":
		return unixPrefix + addr.String()
	case c.TLSCert != "":
		return "https://" + addr.String()
	}
	return "http://" + addr.String()
}

// serveOn serves a listener until the server is shut down.
func serveOn(s *http.Server, listener net.Listener) error {
	if s.TLSConfig != nil {
		return s.ServeTLS(listener, "", "")
	}
	return s.Serve(listener)
}

// tlsConfig returns the configuration for HTTPS; nil means plain HTTP.
func (c *serveCmd) tlsConfig(log *slog.Logger) (*tls.Config, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	pair, err := readCertificate(c.TLSCert, c.TLSKey, log)
	if err != nil {
		return nil, err
	}
	return pair.config(), nil
}

// socketMode is the mode of a Unix socket's file: owner and group may connect, which needs write
// permission.
const socketMode = 0o660

// socketPath is the longest path of a Unix socket, in bytes.
const socketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// listenUnix creates a Unix socket at path and listens on it; closing the listener removes it. A
// stale socket of a dead process is removed first.
//
// The file must not be open to others even for a moment, so the umask sets its mode. The umask
// belongs to the whole process: no other file may be created meanwhile, or it gets the mode as
// well.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	cannot := func(why any) error { return fmt.Errorf("--listen: cannot listen on unix:%s: %v", path, why) }
	if len(path) > socketPath {
		return nil, cannot(fmt.Sprintf("the path is %d bytes long, and the system's limit is %d", len(path), socketPath))
	}
	unlock, err := lockDirectory(ctx, filepath.Dir(path))
	if err != nil {
		return nil, cannot(event.Cause(err))
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, cannot(err)
	}
	before := syscall.Umask(0o777 &^ socketMode)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	syscall.Umask(before)
	if err != nil {
		return nil, cannot(event.Cause(err))
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(cannot(event.Cause(err)), listener.Close())
	}
	listener.SetUnlinkOnClose(false)
	return &unixListener{UnixListener: listener, path: path, made: info}, nil
}

// removeStale removes a stale socket at path. It refuses if a process listens there or the file is
// no socket.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return event.Cause(err)
	case info.Mode().Type() != os.ModeSocket:
		return errors.New("there is a file that is not a socket; move it, or listen elsewhere")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		conn.Close()
		return errors.New("another process is listening there; stop it, or listen elsewhere")
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot tell whether another process is listening there: %w", event.Cause(err))
	}
	return os.Remove(path)
}

// lockPatience is how long creating a socket waits for another process that creates one in the same
// directory.
const lockPatience = 5 * time.Second

// lockDirectory keeps two processes that start at once from removing each other's sockets as stale.
func lockDirectory(ctx context.Context, dir string) (unlock func() error, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return d.Close, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, d.Close())
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("another process has locked the directory %s", dir), d.Close())
		}
	}
}

// unixListener removes its socket on close, unless another one has replaced it.
type unixListener struct {
	*net.UnixListener
	path string
	made os.FileInfo
}

func (l *unixListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
		if err := os.Remove(l.path); err != nil {
			return errors.Join(err, l.UnixListener.Close())
		}
	}
	return l.UnixListener.Close()
}

// passedOn returns the one listening stream socket that systemd passes on.
func passedOn() (net.Listener, error) {
	files := activation.Files(true)
	defer func() {
		for _, f := range files {
			f.Close() // the listener has its own descriptor
		}
	}()
	switch len(files) {
	case 0:
		return nil, usagef("--listen: systemd passed no socket (LISTEN_FDS); start this process from a socket unit such as docs/outboxweb.socket")
	case 1:
	default:
		return nil, usagef("--listen: systemd passed %d sockets, and only one is supported; leave one ListenStream= in the socket unit", len(files))
	}
	if !isListening(files[0]) {
		return nil, usagef("--listen: systemd passed something other than a listening stream socket; the socket unit needs ListenStream= and Accept=no")
	}
	listener, err := net.FileListener(files[0])
	if err != nil {
		return nil, usagef("--listen: the socket from systemd cannot be used: %v", event.Cause(err))
	}
	return listener, nil
}

// isListening reports whether a file is a stream socket that accepts connections.
func isListening(f *os.File) bool {
	kind, err := syscall.GetsockoptInt(int(f.Fd()), syscall.SOL_SOCKET, syscall.SO_TYPE)
	if err != nil || kind != syscall.SOCK_STREAM {
		return false
	}
	accepts, err := syscall.GetsockoptInt(int(f.Fd()), syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
	return err == nil && accepts != 0
}
