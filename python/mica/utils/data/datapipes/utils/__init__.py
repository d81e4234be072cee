"""What pipes share: streams of files, decoders, snapshots."""
