package handlers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/web/templates/jobs"
)

// rehearsalForm is a rehearsal's request as a form: with the edited text of one projection's file.
type rehearsalForm struct {
	replay.RehearsalStartRequest
	Projection string `json:"projection" validate:"id"`
	Text       string `json:"text"`
}

// startRehearsal starts a rehearsal, if this server offers them.
func (s *server) startRehearsal(ctx context.Context, o operator.Command, asked replay.RehearsalStartRequest) (replay.Run, error) {
	if s.Rehearse == nil {
		return replay.Run{}, event.NotFound("this server cannot rehearse fixes")
	}
	return s.Rehearse(ctx, o, asked.RehearsalRequest)
}

func (s *server) readRehearsal(ctx context.Context, id int64) (replay.FixRehearsal, error) {
	return s.Runs.Rehearsal(ctx, id, s.Projections)
}

// rehearsalQuery is what the form is about.
type rehearsalQuery struct {
	Fingerprint string `json:"fingerprint" validate:"fingerprint"`
	Projection  string `json:"projection" validate:"id"`                        // the one whose file is edited
	Version     string `json:"version" validate:"omitempty,hexadecimal,max=64"` // whose text is edited; empty for the loaded one
	Rehearsal   int64  `json:"rehearsal" validate:"min=0"`                      // whose text is edited; 0 for none
}

// newRehearsalPage asks for the changed files: the text of one to edit, and files to upload.
func (s *server) newRehearsalPage(w http.ResponseWriter, r *http.Request) error {
	var q rehearsalQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return err
	}
	if s.ProjectionFile == nil {
		return event.NotFound("this server cannot rehearse fixes")
	}
	files := slices.DeleteFunc(slices.Clone(s.Projections), func(p campaign.ProjectionInfo) bool { return p.Source == campaign.SourceGo })
	view := jobs.NewRehearsalView{Fingerprint: q.Fingerprint, Projection: q.Projection, Loaded: files, Key: uuid.NewString()}
	if view.Projection == "" {
		view.Projection = atFault(q.Fingerprint, files)
	}
	if me(r).Role.Includes(operator.ActionRehearse.Role()) {
		if err := s.startFrom(r.Context(), q, &view); err != nil {
			return err
		}
	}
	p := s.page(r, "Rehearse a fix", "Runs")
	return s.render(w, r, http.StatusOK, p, pageOf(jobs.NewRehearsalPage, view))
}

// startFrom sets the text that the page begins with: that of the loaded version, of another one, or of
// an earlier rehearsal.
func (s *server) startFrom(ctx context.Context, q rehearsalQuery, view *jobs.NewRehearsalView) error {
	view.File = s.ProjectionFile(view.Projection)
	view.Change, _ = s.Store.LastChange(ctx, view.Projection) // without it the page is worth reading, too
	switch {
	case q.Version != "":
		d, err := s.Store.KeptDefinition(ctx, view.Projection, q.Version)
		if err != nil {
			return err
		}
		view.From, view.File.Text = &d, d.File.Text
	case q.Rehearsal > 0:
		files, err := s.Runs.RehearsedFiles(ctx, q.Rehearsal)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(files, func(f campaign.RehearsalFile) bool { return f.Name == view.File.Name })
		if i < 0 && len(files) == 1 {
			i = 0 // uploaded under another name
		}
		if i < 0 {
			return event.NotFound("the files of rehearsal %d are not kept", q.Rehearsal)
		}
		view.Run, view.File.Text = q.Rehearsal, files[i].Text
	}
	return nil
}

// atFault returns the projection that an error's fingerprint names, or else the first one.
func atFault(fingerprint string, loaded []campaign.ProjectionInfo) string {
	i := slices.IndexFunc(loaded, func(p campaign.ProjectionInfo) bool { return campaign.FailedIn(fingerprint, p.Name) })
	if len(loaded) == 0 {
		return ""
	}
	return loaded[max(i, 0)].Name
}

func (s *server) readRehearsalForm(r *http.Request) (asked replay.RehearsalStartRequest, err error) {
	var form rehearsalForm
	if err := fillForm(r, &form); err != nil {
		return asked, err
	}
	files, err := uploadedFiles(r)
	if err != nil {
		return asked, err
	}
	// Browsers send line breaks as CR LF. The text of the form counts if it was edited, or alone.
	text := strings.ReplaceAll(form.Text, "\r\n", "\n")
	if text != "" && s.ProjectionFile != nil && (len(files) == 0 || text != s.ProjectionFile(form.Projection).Text) {
		files = append(files, campaign.RehearsalFile{Name: s.ProjectionFile(form.Projection).Name, Text: text})
	}
	if len(files) == 0 {
		return asked, event.Invalid("text", "there is no file to rehearse: choose changed files to upload")
	}
	form.Files = files
	return form.RehearsalStartRequest, nil
}

// uploadedFiles reads the files of a form, which are in memory.
func uploadedFiles(r *http.Request) (files []campaign.RehearsalFile, err error) {
	if r.MultipartForm == nil {
		return nil, nil
	}
	for _, header := range r.MultipartForm.File["files"] {
		if header.Filename == "" {
			continue
		}
		f, err := header.Open()
		if err != nil {
			return nil, fmt.Errorf("read an uploaded file: %w", err)
		}
		text, err := io.ReadAll(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read an uploaded file: %w", err)
		}
		files = append(files, campaign.RehearsalFile{Name: header.Filename, Text: string(text)})
	}
	return files, nil
}
