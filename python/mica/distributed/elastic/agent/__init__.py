"""What starts and watches the processes of one machine."""
