package pgtest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Segments of 1 MB make the copy of a cluster a third smaller.
const initdb = "initdb --wal-segsize=1 -D data -U postgres -E UTF8 --locale=C.UTF-8 -A trust --no-sync"

// cluster makes the directory data of a server: a copy of the one that initdb made for an earlier
// server, which takes a tenth of its time, and otherwise a new one, which is kept for later ones
// where there is a place for it.
func (j *janitor) cluster() error {
	kept, err := j.keptCluster()
	if err != nil { // no home
		return j.run(initdb)
	}
	if err := exec.Command("cp", "-a", kept, filepath.Join(j.dir, "data")).Run(); err == nil {
		return nil
	}
	if err := j.run("rm -rf data && " + initdb); err != nil {
		return err
	}
	j.keep(kept)
	return nil
}

// keptCluster is the place of the cluster that this initdb, called so, makes for this account.
func (j *janitor) keptCluster() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	version, err := exec.Command(filepath.Join(j.bin, "initdb"), "--version").Output()
	if err != nil {
		return "", err
	}
	made := sha256.Sum256(fmt.Appendf(nil, "%s%s%v", version, initdb, j.cmd.SysProcAttr.Credential))
	return filepath.Join(cache, "outboxweb-pgtest", fmt.Sprintf("%x", made[:8])), nil
}

// keep copies the new cluster to its place, at once so that no other process copies a part of it.
// It is a matter of time alone, so failing is no error.
func (j *janitor) keep(kept string) {
	if os.MkdirAll(filepath.Dir(kept), 0o700) != nil {
		return
	}
	making, err := os.MkdirTemp(filepath.Dir(kept), "making")
	if err != nil {
		return
	}
	defer os.RemoveAll(making)
	whole := filepath.Join(making, "data")
	if exec.Command("cp", "-a", filepath.Join(j.dir, "data"), whole).Run() == nil {
		_ = os.Rename(whole, kept) // another process may have been faster
	}
}
