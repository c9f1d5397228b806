// Package static embeds the stylesheet, the scripts and the icon, and serves each under a URL that
// contains the hash of its content, so that browsers may cache it forever and see an upgrade at
// once.
package static

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// The assets by their file names. The stylesheet and the script are the files of css/ and js/ in the
// order of their names, so that each part of the console keeps a file of its own and a page loads
// two.
const (
	Stylesheet = "app.css"
	Script     = "app.js"
	Icon       = "icon.svg"
	IconWarn   = "icon-warn.svg"
	IconBad    = "icon-bad.svg"
	Sans       = "vendor/plex-sans-400.woff2"
	SansBold   = "vendor/plex-sans-600.woff2"
	Mono       = "vendor/plex-mono-400.woff2"
	Start      = "start.js"
	HTMX       = "vendor/htmx-2.0.11.min.js"
	Idiomorph  = "vendor/idiomorph-ext-0.8.0.min.js"
)

// Scripts are what Start runs after the first paint, in this order.
var Scripts = []string{HTMX, Idiomorph, Script}

//go:embed css js start.js *.svg vendor
var files embed.FS

type asset struct {
	contentType string
	body        []byte
	gzipped     func() []byte // returns nil if compression does not help; computed on first use, since commands serve nothing
}

var (
	paths  = map[string]string{} // name → "HASH/name"
	assets = map[string]asset{}  // "HASH/name" → content
)

func init() {
	for _, name := range []string{Icon, IconWarn, IconBad, Start, HTMX, Idiomorph, Sans, SansBold, Mono} {
		add(name, read(name))
	}
	add(Script, join("js/*.js"))
	add(Stylesheet, linked(join("css/*.css")))
}

func add(name string, body []byte) {
	sum := sha256.Sum256(body)
	hashed := hex.EncodeToString(sum[:8]) + "/" + path.Base(name)
	paths[name] = hashed
	assets[hashed] = asset{contentType: contentType(name), body: body, gzipped: sync.OnceValue(func() []byte { return compress(body) })}
}

// linked returns the stylesheet with the files it names under the paths they are served at.
func linked(css []byte) []byte {
	for _, name := range []string{Sans, SansBold, Mono} {
		css = bytes.ReplaceAll(css, []byte("url("+name+")"), []byte("url(../"+paths[name]+")"))
	}
	return css
}

// join returns the embedded files that match a pattern, one after the other.
func join(pattern string) []byte {
	names, _ := fs.Glob(files, pattern) // the patterns are valid
	var all []byte
	for _, name := range names {
		all = append(all, read(name)...)
	}
	return all
}

func read(name string) []byte {
	body, err := files.ReadFile(name)
	if err != nil {
		panic("embedded assets: " + err.Error())
	}
	return body
}

// contentType depends on the name alone, not on the machine's MIME tables.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	}
	return "text/plain; charset=utf-8"
}

func compress(body []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	_, _ = w.Write(body)                                    // a bytes.Buffer never fails
	_ = w.Close()
	if out.Len() >= len(body) {
		return nil
	}
	return out.Bytes()
}

// Path returns the path of an asset for Serve, such as "1f2e3d4c5b6a7988/app.css". It panics if
// there is no asset of that name.
func Path(name string) string {
	p, ok := paths[name]
	if !ok {
		panic("no embedded asset " + strconv.Quote(name))
	}
	return p
}

// Serve answers with the asset at path, as returned by Path, and reports whether there is one;
// otherwise it writes nothing.
func Serve(w http.ResponseWriter, r *http.Request, path string) bool {
	a, ok := assets[path]
	if !ok {
		return false
	}
	h := w.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Content-Type", a.contentType)
	h.Add("Vary", "Accept-Encoding")
	body := a.body
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		if gzipped := a.gzipped(); gzipped != nil {
			h.Set("Content-Encoding", "gzip")
			body = gzipped
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may have disconnected
	}
	return true
}
