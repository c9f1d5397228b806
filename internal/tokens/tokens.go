// Package tokens stores API tokens: who created each, when it expires, and when it was last
// used.
package tokens

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Tokens is the store of API tokens. The journal database has only their hashes.
//
// It is safe for concurrent use, by several processes too.
type Tokens struct {
	// File has the tokens of the server's file, by hash; see ReadFile. Set it before the first use.
	File map[string]operator.Token

	core *store.Store
	uses sync.Map // id of a token → when this process last recorded its use, in microseconds
}

// New returns the Tokens of a store.
func New(core *store.Store) *Tokens { return &Tokens{core: core} }

const (
	maxTokenNote  = 100 // bytes
	shortestToken = time.Minute
	longestToken  = 2 * 366 * 24 * time.Hour
	tokensListed  = 1000
)

// tokenChange is the audit record of a token, without its hash.
type tokenChange struct {
	TokenID   int64         `json:"token_id,omitempty"`
	Role      operator.Role `json:"role,omitempty"`
	Note      string        `json:"note,omitempty"`
	ExpiresAt *time.Time    `json:"expires_at,omitempty"`
	State     string        `json:"state,omitempty"`
}

// CreateToken stores the hash of a token that is valid until expires: one minute to two years
// from now. The note says what it is for, in at most 100 bytes.
func (s *Tokens) CreateToken(ctx context.Context, o operator.Command, hash string, role operator.Role, note string, expires time.Time) (operator.Token, error) {
	expires = expires.UTC().Truncate(time.Microsecond)
	token := operator.Token{Role: role, Note: note, CreatedBy: o.By.Name, ExpiresAt: expires}
	if err := s.checkToken(token); err != nil {
		return operator.Token{}, err
	}
	asked := tokenChange{Role: role, Note: note, ExpiresAt: &expires}
	a := &store.Change{Command: o, Action: operator.ActionTokenCreate, Before: asked, Asked: asked}
	return store.Perform(ctx, s.core, a, func(t *store.Tx, now int64) (operator.Token, error) {
		if err := s.core.RequireReason(o, 0); err != nil {
			return operator.Token{}, err
		}
		token.CreatedAt = sqldb.At(now)
		if _, err := t.One([]any{&token.ID}, insertToken, hash, string(role), note, now, o.By.Name, expires.UnixMicro()); err != nil {
			return operator.Token{}, fmt.Errorf("create a token: %w", err)
		}
		a.Target = operator.TokenTarget(token.ID)
		a.After = tokenChange{TokenID: token.ID, Role: role, Note: note, ExpiresAt: &expires, State: token.State(sqldb.At(now))}
		return token, nil
	})
}

func (s *Tokens) checkToken(token operator.Token) error {
	if _, err := operator.ParseRole(string(token.Role)); err != nil {
		return err
	}
	ahead := token.ExpiresAt.Sub(sqldb.At(s.core.Now()))
	_, unseen := event.UnseenIn(token.Note)
	switch note := token.Note; {
	case len(note) > maxTokenNote:
		return event.Invalid("note", "the note is %d bytes long; the limit is %d", len(note), maxTokenNote)
	case !utf8.ValidString(note) || unseen:
		return event.Invalid("note", "the note must be one line of text without characters that cannot be seen")
	case ahead < shortestToken:
		return event.Invalid("expires", "a token must be valid for at least a minute")
	case ahead > longestToken:
		return event.Invalid("expires", "a token may be valid for at most two years")
	}
	return nil
}

// RevokeToken revokes a token at once. A revoked one is event.ErrConflict, a missing one
// event.ErrNotFound.
func (s *Tokens) RevokeToken(ctx context.Context, o operator.Command, id int64) (operator.Token, error) {
	asked := tokenChange{TokenID: id}
	a := &store.Change{Command: o, Action: operator.ActionTokenRevoke, Target: operator.TokenTarget(id), Before: asked, Asked: asked}
	return store.Perform(ctx, s.core, a, func(t *store.Tx, now int64) (operator.Token, error) {
		var found []operator.Token
		err := t.Each(collectTokens(&found), selectTokens+`where id = $1`+t.ForUpdate, id)
		switch {
		case err != nil:
			return operator.Token{}, fmt.Errorf("read token %d: %w", id, err)
		case len(found) == 0:
			return operator.Token{}, event.NotFound("there is no token %d", id)
		}
		token := found[0]
		if token.RevokedAt != nil {
			return token, event.Conflict("token %d was revoked by %s %s ago", id, token.RevokedBy, event.Age(sqldb.At(now).Sub(*token.RevokedAt)))
		}
		if err := s.core.RequireReason(o, 0); err != nil {
			return token, err
		}
		token.RevokedAt, token.RevokedBy = sqldb.AtOrNil(sql.NullInt64{Int64: now, Valid: true}), o.By.Name
		a.After = tokenChange{TokenID: id, Role: token.Role, Note: token.Note, ExpiresAt: &token.ExpiresAt, State: token.State(sqldb.At(now))}
		_, err = t.Exec(`update tokens set revoked_at = $1, revoked_by = $2 where id = $3`, now, o.By.Name, id)
		return token, err
	})
}

// List lists the latest 1,000 tokens and those of the file: the valid ones first, then the newest.
func (s *Tokens) List(ctx context.Context) ([]operator.Token, error) {
	tokens := []operator.Token{}
	err := s.core.Journal().Read(ctx, func(t *store.Tx) error {
		return t.Each(collectTokens(&tokens), selectTokens+`order by id desc limit $1`, tokensListed)
	})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	tokens = append(tokens, s.fromFile()...)
	operator.SortTokens(tokens, sqldb.At(s.core.Now()))
	return tokens, nil
}

// TokenByHash finds a token in any state, first in the file. An unknown one is event.ErrNotFound.
func (s *Tokens) TokenByHash(ctx context.Context, hash string) (operator.Token, error) {
	if token, found := s.File[hash]; found {
		return token, nil
	}
	var found []operator.Token
	err := s.core.Journal().Read(ctx, func(t *store.Tx) error {
		return t.Each(collectTokens(&found), selectTokens+`where hash = $1`, hash)
	})
	switch {
	case err != nil:
		return operator.Token{}, fmt.Errorf("find a token: %w", err)
	case len(found) == 0:
		return operator.Token{}, event.NotFound("there is no such token")
	}
	return found[0], nil
}

const (
	tokenUsePause = time.Minute            // between two records of the use of one token
	tokenUseTime  = 250 * time.Millisecond // that a request may wait for one
)

// RecordTokenUse records when a token was last used, to the minute. It tries once a minute and
// ignores errors: a busy or read-only database keeps an older time. The use of a token of the file is
// not recorded.
func (s *Tokens) RecordTokenUse(ctx context.Context, token operator.Token) {
	now := s.core.Now()
	if last := token.LastUsedAt; token.Name != "" || s.core.ReadOnly() || last != nil && now-last.UnixMicro() < tokenUsePause.Microseconds() {
		return
	}
	if last, tried := s.uses.Load(token.ID); tried && now-last.(int64) < tokenUsePause.Microseconds() {
		return
	}
	s.uses.Store(token.ID, now)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenUseTime)
	defer cancel()
	_ = s.core.Journal().Write(ctx, func(t *store.Tx) error {
		_, err := t.Exec(`update tokens set last_used_at = $1 where id = $2 and (last_used_at is null or last_used_at < $1)`, now, token.ID)
		return err
	})
}

const (
	insertToken = `
insert into tokens (hash, role, note, created_at, created_by, expires_at)
values ($1, $2, $3, $4, $5, $6)
returning id`

	selectTokens = `
select id, role, note, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at
from tokens
`
)

func collectTokens(into *[]operator.Token) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		var token operator.Token
		var created, expires int64
		var revoked, used sql.NullInt64
		err := row.Scan(&token.ID, &token.Role, &token.Note, &created, &token.CreatedBy, &expires, &revoked, &token.RevokedBy, &used)
		token.CreatedAt, token.ExpiresAt = sqldb.At(created), sqldb.At(expires)
		token.RevokedAt, token.LastUsedAt = sqldb.AtOrNil(revoked), sqldb.AtOrNil(used)
		*into = append(*into, token)
		return err
	}
}
