package main

import (
	"bytes"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
)

//go:embed pages.html shop.css
var files embed.FS

var templates = template.Must(template.ParseFS(files, "pages.html"))

const policy = "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// page is the shop's page as a user sees it.
type page struct {
	User     User
	Products []Product
	Orders   []Order
	Refusal  string
}

// pages are the shop's own pages.
func (s *Shop) pages(l *login) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /shop.css", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, "shop.css") })
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, _ *http.Request) { render(w, http.StatusOK, "login", users) })
	mux.HandleFunc("POST /login", l.signIn)
	mux.HandleFunc("POST /logout", l.signOut)
	signedIn := func(pattern string, do func(w http.ResponseWriter, r *http.Request, u User) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			u, ok := l.user(r)
			if !ok {
				http.Redirect(w, r, "/login", http.StatusSeeOther)
				return
			}
			s.answer(w, r, u, do(w, r, u))
		})
	}
	signedIn("GET /{$}", func(w http.ResponseWriter, r *http.Request, u User) error { return s.show(w, r, u, http.StatusOK, "") })
	signedIn("POST /orders", func(w http.ResponseWriter, r *http.Request, u User) error {
		quantity, err := strconv.Atoi(r.FormValue("quantity"))
		if err != nil || quantity < 1 {
			return errRefused("The quantity is not a number from 1.")
		}
		if _, err := s.place(r.Context(), u.Name, r.FormValue("product"), quantity); err != nil {
			return err
		}
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return nil
	})
	signedIn("POST /orders/{id}/ship", func(w http.ResponseWriter, r *http.Request, u User) error {
		if err := s.ship(r.Context(), u.Name, r.PathValue("id")); err != nil {
			return err
		}
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return nil
	})
	return mux
}

// answer turns errors into pages.
func (s *Shop) answer(w http.ResponseWriter, r *http.Request, u User, err error) {
	if refused, ok := errors.AsType[errRefused](err); ok {
		err = s.show(w, r, u, http.StatusConflict, string(refused))
	}
	if err != nil {
		slog.Error("request", "path", r.URL.Path, "error", err)
		http.Error(w, "The shop could not answer. Please try again.", http.StatusInternalServerError)
	}
}

// show shows stock and orders.
func (s *Shop) show(w http.ResponseWriter, r *http.Request, u User, status int, refusal string) error {
	products, err := s.products(r.Context())
	if err != nil {
		return err
	}
	orders, err := s.orders(r.Context())
	if err != nil {
		return err
	}
	return render(w, status, "shop", page{u, products, orders, refusal})
}

func render(w http.ResponseWriter, status int, name string, data any) error {
	var text bytes.Buffer
	if err := templates.ExecuteTemplate(&text, name, data); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = text.WriteTo(w) // the reader may have left
	return nil
}
