package main

import (
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb"
)

// User is a person who may sign in. A real shop has passwords, or the login of its company.
type User struct {
	Name string
	Role outboxweb.Role
}

var users = []User{
	{"vera", outboxweb.RoleViewer},
	{"otto", outboxweb.RoleOperator},
	{"ada", outboxweb.RoleAdmin},
}

const cookieName = "shop_session"

// login keeps sessions in memory, for as long as the process runs.
type login struct {
	mu       sync.Mutex
	sessions map[string]session
}

type session struct {
	user    User
	expires time.Time
}

func newLogin() *login { return &login{sessions: map[string]session{}} }

// user returns who sent the request.
func (l *login) user(r *http.Request) (User, bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return User{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, found := l.sessions[cookie.Value]
	return s.user, found && time.Now().Before(s.expires)
}

// operator is the shop's login as the console asks for it.
func (l *login) operator(r *http.Request) (outboxweb.Operator, error) {
	u, ok := l.user(r)
	if !ok {
		return outboxweb.Operator{}, errors.New("not signed in to the shop")
	}
	return outboxweb.Operator{Name: u.Name, Role: u.Role}, nil
}

// redirect sends people without a session to the login page. Scripts and the console's own requests
// get its 401 instead.
func (l *login) redirect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := l.user(r); !ok && r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// signIn begins a session of a user.
func (l *login) signIn(w http.ResponseWriter, r *http.Request) {
	for _, u := range users {
		if u.Name != r.FormValue("user") {
			continue
		}
		token := rand.Text()
		l.mu.Lock()
		l.sessions[token] = session{u, time.Now().Add(12 * time.Hour)}
		l.mu.Unlock()
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: token, Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode})
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	http.Error(w, "There is no such user.", http.StatusForbidden)
}

// signOut ends a session.
func (l *login) signOut(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		l.mu.Lock()
		delete(l.sessions, cookie.Value)
		l.mu.Unlock()
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteLaxMode})
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}
