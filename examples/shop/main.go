// Command shop is a small service with an outbox: orders and stock in its own tables, read models
// that are built from its events, and the console under /admin, behind its own login. README.md is
// its tutorial.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outboxweb/outboxweb"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8090", "`address` to listen on")
	db := flag.String("db", "sqlite:data/shop", "sqlite:DIRECTORY, or postgres://…")
	projections := flag.String("projections", "examples/shop/projections", "`directory` of the SQL projections")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *db, *projections); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// place is the URL of one of the three databases: the shop's own, the journal and the projections. On
// PostgreSQL they are schemas of one database.
func place(db, name string) (string, error) {
	if dir, ok := strings.CutPrefix(db, "sqlite:"); ok {
		return "sqlite:" + filepath.Join(dir, name+".db"), os.MkdirAll(dir, 0o700)
	}
	u, err := url.Parse(db)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return "", errors.New("-db is neither sqlite:DIRECTORY nor postgres://USER@HOST/DATABASE")
	}
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// openEngine opens the journal and the read models, with the shop's database as a source of events.
func openEngine(ctx context.Context, db, shopURL, projections string) (*outboxweb.Engine, error) {
	journal, err := place(db, "journal")
	if err != nil {
		return nil, err
	}
	readModels, err := place(db, "projections")
	if err != nil {
		return nil, err
	}
	e, err := outboxweb.Open(ctx, outboxweb.Config{
		JournalDB:     journal,
		ProjectionsDB: readModels,
		BasePath:      "/admin",
		Sources:       map[string]outboxweb.Source{"shop": {URL: shopURL, PollInterval: 200 * time.Millisecond}},
		Projections:   []string{projections},
		MaxAttempts:   3, // a demo should not wait long for a dead event
		RetryBase:     500 * time.Millisecond,
		Logger:        slog.Default(),
	})
	if err != nil {
		return nil, err
	}
	if err := e.Project(orderStates); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func run(ctx context.Context, listen, db, projections string) error {
	shop, err := openShop(ctx, db)
	if err != nil {
		return err
	}
	defer shop.Close()
	e, err := openEngine(ctx, db, shop.url, projections)
	if err != nil {
		return err
	}
	defer e.Close()

	l := newLogin()
	mux := http.NewServeMux()
	mux.Handle("/", http.NewCrossOriginProtection().Handler(shop.pages(l)))
	mux.Handle("/admin/", l.redirect(e.Handler(l.operator)))

	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	return serve(ctx, e, listener, mux)
}

// serve runs the engine and the server until ctx ends, and waits for both.
func serve(ctx context.Context, e *outboxweb.Engine, listener net.Listener, handler http.Handler) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	var running sync.WaitGroup
	var runErr, stopErr error
	running.Go(func() {
		runErr = e.Run(ctx)
		stop()
	})
	running.Go(func() {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		stopErr = server.Shutdown(ending)
	})
	err := server.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	stop()
	running.Wait()
	return errors.Join(err, runErr, stopErr)
}
