// Command csimock is Kubernetes' own mock of a CSI driver as a program that registers, as with a node-driver-registrar.
// The mock keeps its volumes in memory and mounts nothing; where it would make a directory for a volume, this program
// mounts an empty file system.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

func main() {
	name := flag.String("name", service.Name, "the driver's name")
	dir := flag.String("dir", "", "directory of its socket")
	registry := flag.String("registry", "", "directory where it registers")
	flag.Parse()
	if err := serve(*name, *dir, *registry); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(name, dir, registry string) error {
	endpoint := filepath.Join(dir, "csi.sock")
	listener, err := listen(endpoint)
	if err != nil {
		return err
	}
	s := service.New(service.Config{DisableAttach: true, DriverName: name, IO: mounting{}})
	mock := driver.NewCSIDriver(&driver.CSIDriverServers{Controller: s, Identity: s, Node: s})
	if err := mock.Start(listener, nil); err != nil {
		return err
	}
	defer mock.Stop()
	if listener, err = listen(filepath.Join(registry, name+"-reg.sock")); err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, registrar{name: name, endpoint: endpoint})
	return server.Serve(listener)
}

// listen listens at a socket, which a former process may have left.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// registrar says what a node-driver-registrar says.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r registrar) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		fmt.Fprintln(os.Stderr, "not registered:", status.Error)
		os.Exit(1) // as a node-driver-registrar does
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// mounting makes the directories of published volumes as mounts.
type mounting struct{ service.OSDirIO }

func (m mounting) Mkdir(path string) error {
	if err := m.OSDirIO.Mkdir(path); err != nil {
		return err
	}
	return unix.Mount("csimock", path, "tmpfs", 0, "size=1m")
}

func (m mounting) RemoveAll(path string) error {
	if err := unix.Unmount(path, 0); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return err
	}
	return os.Remove(path)
}
