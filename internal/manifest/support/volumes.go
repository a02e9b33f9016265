package support

import (
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/decode"
)

const (
	noController = "podrun attaches and resizes no volumes"
	noDeletion   = "podrun deletes no volume"
	byName       = "podrun knows a claim by its name alone"
	noPV         = "needs a driver that podrun does not have; use csi, or mount it on this machine and use hostPath"
)

// volumeTable continues table with the types of PersistentVolumes.
var volumeTable = map[string]map[string]*rule{
	"PersistentVolume": workload,
	"PersistentVolumeSpec": {
		"capacity":                      yes("at least what the claim requests"),
		"accessModes":                   yes("the first one is what a CSI driver is given"),
		"claimRef":                      yes("the claim that has the volume, with or without a document of its own"),
		"persistentVolumeReclaimPolicy": ignored(noDeletion, "Retain"),
		"storageClassName":              yes("must be the claim's, if its document names one"),
		"mountOptions":                  yes("of csi"),
		"volumeMode":                    yes("Block: of csi"),
		"nodeAffinity":                  ignored("there is one machine"),
		"volumeAttributesClassName":     ignored(noController),
		"csi":                           yes("needs a CSI driver that has registered, and does not attach; see plugins.md"),
		"hostPath":                      yes("as of a Pod"),
		"nfs":                           yes("as of a Pod"),
		"local":                         never("use hostPath"),
		"gcePersistentDisk":             never(noPV), "awsElasticBlockStore": never(noPV), "glusterfs": never(noPV),
		"rbd": never(noPV), "iscsi": never(noPV), "cinder": never(noPV),
		"cephfs": never(noPV), "fc": never(noPV), "flocker": never(noPV),
		"flexVolume": never(noPV), "azureFile": never(noPV), "vsphereVolume": never(noPV),
		"quobyte": never(noPV), "azureDisk": never(noPV), "photonPersistentDisk": never(noPV),
		"portworxVolume": never(noPV), "scaleIO": never(noPV), "storageos": never(noPV),
	},
	"CSIPersistentVolumeSource": {
		"driver": yes(""), "volumeHandle": yes("a volume that there is: podrun creates none"),
		"readOnly": yes("makes the volume read-only"), "fsType": yes(""), "volumeAttributes": yes(""),
		"nodeStageSecretRef": yes(""), "nodePublishSecretRef": yes(""),
		"controllerPublishSecretRef": ignored(noController), "controllerExpandSecretRef": ignored(noController),
		"nodeExpandSecretRef": ignored(noController),
	},
	"SecretReference": {"name": yes(""), "namespace": yes("")},
	"ObjectReference": {
		"kind": yes(""), "namespace": yes(""), "name": yes(""), "apiVersion": yes(""),
		"uid": ignored(byName), "resourceVersion": ignored(byName), "fieldPath": ignored(byName),
	},
}

// CheckVolume does for a PersistentVolume what Check does for a Pod.
func CheckVolume(value any) (errs, warnings []decode.Error) {
	c := checker{}
	c.walk(value, reflect.TypeFor[v1.PersistentVolume](), "")
	return c.errs, c.warnings
}

// namedVolumes warns about the volumes that templates of claims name: the claims of several pods cannot have one.
func (c *checker) namedVolumes(spec map[string]any) {
	templates, _ := spec["volumeClaimTemplates"].([]any)
	for i, t := range templates {
		template, _ := t.(map[string]any)
		of, _ := template["spec"].(map[string]any)
		if name, _ := of["volumeName"].(string); name != "" {
			c.warn(fmt.Sprintf("spec.volumeClaimTemplates[%d].spec.volumeName", i),
				"has no effect; name the claim of each pod in the claimRef of a PersistentVolume")
		}
	}
}
