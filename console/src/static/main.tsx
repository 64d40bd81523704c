// The console of a saved run: one folder that opens without a server.
import "./server";
import "../main";
