package handlers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/request"
)

// fill reads a query or a form without a range of time.
func fill(params any, values url.Values) error { return request.Fill(params, values, time.Time{}) }

// decode decodes a JSON body into *params and validates it. An empty body leaves the zero value;
// unknown fields are refused by name.
func decode(r *http.Request, params any) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return request.Check(params)
	}
	if err := request.JSON(body, params); err != nil {
		return err
	}
	return request.Check(params)
}

// readBody reads the body that jsonBody has limited.
func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, bodyError(err)
	}
	return body, checkBody(body)
}

func checkBody(body []byte) error {
	if !utf8.Valid(body) {
		return event.Invalid("", "the body is not valid UTF-8")
	}
	return nil
}

func bodyError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &event.Refusal{Err: event.ErrTooLarge, Detail: fmt.Sprintf("the body is larger than the limit of %d bytes", tooLarge.Limit)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &event.Refusal{Err: errSlow, Detail: "the body took too long to arrive; nothing was changed"}
	}
	return event.Invalid("", "the body could not be read: it ended early or is malformed")
}

// param returns a path parameter unescaped. The router matches the escaped path, so it is always
// unescaped here, and only here.
func param(r *http.Request, name string) (string, error) {
	text, err := url.PathUnescape(chi.URLParam(r, name))
	if err != nil || !request.IsText(text) {
		return "", event.Invalid(name, "%s in the URL is not valid UTF-8, or contains a NUL character", name)
	}
	return text, nil
}

// pathParam returns param of a name.
func pathParam(name string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) { return param(r, name) }
}

// numberParam returns param of a name for a whole number from 1; says begins the sentence of the
// refusal.
func numberParam(name, says string) func(*http.Request) (int64, error) {
	return func(r *http.Request) (int64, error) {
		text, err := param(r, name)
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return 0, event.Invalid(name, "%s a whole number from 1, not %q", says, text)
		}
		return n, nil
	}
}

// Numbers in addresses.
var (
	seqParam       = numberParam("seq", "seq must be")
	runParam       = numberParam("run", "a run id is")
	operationParam = numberParam("operation", "an operation id is")
	tokenParam     = numberParam("token", "a token id is")
	failureParam   = numberParam("failure", "a failure id is")
	viewParam      = numberParam("view", "a view id is")
	rejectedParam  = numberParam("rejection", "the id of a rejected row is")
)

func campaignParam(r *http.Request) (string, error) {
	id, err := param(r, "campaign")
	if err == nil && id == "" {
		return "", event.NotFound("there is no campaign without a name")
	}
	return id, err
}

// asked returns what a request is about, which its address names, and its query.
func asked[Q, K any](r *http.Request, about func(*http.Request) (K, error)) (on K, q Q, err error) {
	if on, err = about(r); err == nil {
		err = fill(&q, r.URL.Query())
	}
	return on, q, err
}

// rowParam returns the campaign and seq in an address.
func rowParam(r *http.Request) (row event.RowKey, err error) {
	if row.CampaignID, err = campaignParam(r); err == nil {
		row.Seq, err = seqParam(r)
	}
	return row, err
}
